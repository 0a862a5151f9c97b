-- The ledger as gateways before version 2 left it: two requests settled, one left open by a process that died.
CREATE TABLE requests (
	request_id VARCHAR(64) NOT NULL,
	opened_at_us BIGINT NOT NULL,
	owner_id VARCHAR(64) NOT NULL,
	tenant_id TEXT NOT NULL,
	key_id TEXT NOT NULL,
	share_group TEXT NOT NULL,
	model TEXT NOT NULL,
	route TEXT NOT NULL,
	stream BOOLEAN NOT NULL,
	prompt_tokens_expected BIGINT,
	PRIMARY KEY (request_id)
)
 WITHOUT ROWID;
CREATE INDEX requests_by_time ON requests (opened_at_us);
CREATE TRIGGER requests_no_update BEFORE UPDATE ON requests BEGIN SELECT RAISE(ABORT, 'rows of the ledger are immutable'); END;
CREATE TRIGGER requests_no_delete BEFORE DELETE ON requests BEGIN SELECT RAISE(ABORT, 'rows of the ledger are immutable'); END;
CREATE TABLE settlements (
	request_id VARCHAR(64) NOT NULL,
	settled_at_us BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL,
	http_status INTEGER,
	endpoint_id TEXT,
	prompt_tokens BIGINT,
	cached_tokens BIGINT,
	cache_write_tokens BIGINT,
	output_tokens BIGINT,
	reasoning_tokens BIGINT,
	expected_cached_tokens BIGINT,
	flags TEXT NOT NULL,
	convention VARCHAR(16),
	usage_json TEXT,
	ttft_s FLOAT,
	duration_s FLOAT,
	prefill_s FLOAT,
	decode_s FLOAT,
	currency VARCHAR(3),
	price_id TEXT,
	input_pico BIGINT,
	cached_input_pico BIGINT,
	cache_write_pico BIGINT,
	output_pico BIGINT,
	full_units BIGINT,
	full_pico BIGINT,
	charged_units BIGINT,
	charged_pico BIGINT,
	PRIMARY KEY (request_id)
)
 WITHOUT ROWID;
CREATE TRIGGER settlements_no_update BEFORE UPDATE ON settlements BEGIN SELECT RAISE(ABORT, 'rows of the ledger are immutable'); END;
CREATE TRIGGER settlements_no_delete BEFORE DELETE ON settlements BEGIN SELECT RAISE(ABORT, 'rows of the ledger are immutable'); END;
CREATE TABLE attempts (
	request_id VARCHAR(64) NOT NULL,
	ordinal INTEGER NOT NULL,
	endpoint_id TEXT NOT NULL,
	started_at_us BIGINT NOT NULL,
	ended_at_us BIGINT NOT NULL,
	outcome TEXT NOT NULL,
	status INTEGER,
	PRIMARY KEY (request_id, ordinal)
)
 WITHOUT ROWID;
CREATE TRIGGER attempts_no_update BEFORE UPDATE ON attempts BEGIN SELECT RAISE(ABORT, 'rows of the ledger are immutable'); END;
CREATE TRIGGER attempts_no_delete BEFORE DELETE ON attempts BEGIN SELECT RAISE(ABORT, 'rows of the ledger are immutable'); END;
CREATE TABLE owners (
	owner_id VARCHAR(64) NOT NULL,
	started_at_us BIGINT NOT NULL,
	ended_at_us BIGINT,
	PRIMARY KEY (owner_id)
);
CREATE TABLE chains (
	request_id VARCHAR(64) NOT NULL,
	block_tokens INTEGER NOT NULL,
	hashes BLOB NOT NULL,
	PRIMARY KEY (request_id)
)
 WITHOUT ROWID;
PRAGMA journal_mode = WAL;
PRAGMA user_version = 1;
INSERT INTO owners VALUES ('gone', 1795000000000000, NULL);
INSERT INTO requests VALUES
    ('whole', 1795001000000000, 'gone', 'acme', 'key-1', 'acme', 'llama', '/v1/chat/completions', 1, 1000),
    ('failed', 1795002000000000, 'gone', 'acme', 'key-1', 'acme', 'llama', '/v1/chat/completions', 1, 1000),
    ('open', 1795003000000000, 'gone', 'acme', 'key-1', 'acme', 'llama', '/v1/chat/completions', 1, 1000);
INSERT INTO settlements VALUES
    ('whole', 1795001002000000, 'complete', 200, 'gpu-a', 1000, 900, NULL, 100, NULL, 896, '', 'openai', NULL, 0.05, 2.0,
     0.01, 1.9, 'USD', 'p1', 1250000, 125000, NULL, 10000000, 0, 2250000000, 0, 1237500000),
    ('failed', 1795002002000000, 'failed', 502, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'not_billable', NULL, NULL, NULL,
     2.0, NULL, NULL, 'USD', 'p1', 1250000, 125000, NULL, 10000000, 0, 0, 0, 0);
