"""What is wrong is found: each kind of fault of ours, planted into evidence that is clean without it."""

from dataclasses import replace

import pytest

from bench.faults.audit import Audit, Evidence, Prices, audit
from bench.faults.judging import World
from bench.faults.types import Acted, Asked, Attempt, Computed, Counts, Fault, Kind, Outcome, Record, Row, Try

PRICES = Prices(input_pico=3_000_000, cached_input_pico=300_000, output_pico=15_000_000)
USAGE = Counts(100, 64, 2)
COST = (36 * 3_000_000) + (64 * 300_000) + (2 * 15_000_000)
USAGE_EVENT = (
    b'data: {"id":"chatcmpl-e1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":64}}}\n\n'
)
TOKENS = [b'data: {"id":"chatcmpl-e1","choices":[{"delta":{"content":"~ab.%d"}}]}\n\n' % number for number in range(2)]
BODY = b"".join(TOKENS) + USAGE_EVENT + b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"it broke off","code":"upstream_failed"}}\n\ndata: [DONE]\n\n'

UNSERVED = "requests that could have been served and were not"
CUT = "answers cut without a fault where they came from"
ALTERED = "answers whose bytes are not the engine's"
LOST = "rows lost"
DOUBLED = "rows doubled"
OPEN = "rows left open"
MISBILLED = "bills that are not what was computed"
OTHERWISE = "engines whose books are not what they said"


def asked(**changes: object) -> Asked:
    one = Try("c-0.0", "gateway-0", 10.0, 11.0, 10.1, "id-0", "engine-0", 200, BODY, "~ab.0~ab.1", USAGE, is_whole=True)
    whole = Asked("c-0", "large", "acme", True, 10.0, "~ab.0~ab.1", [one], Outcome.SERVED, 11.0)
    for name, value in changes.items():
        setattr(one if hasattr(one, name) and name not in ("began_s", "ended_s") else whole, name, value)
    return whole


def cut() -> Asked:
    """An answer of one token, then the gateway's error."""
    found = asked(body=TOKENS[0] + ERROR, text="~ab.0", usage=Counts(), is_whole=True)
    found.outcome = Outcome.CUT
    return found


EXCHANGE = Computed(
    gateway="gateway-0",
    endpoint="engine-0",
    request_id="id-0",
    began_s=10.0,
    ended_s=11.0,
    status=200,
    body=BODY,
    is_whole=True,
    usage=USAGE,
    events=2,
    answer_id="chatcmpl-e1",
)
CUT_EXCHANGE = replace(EXCHANGE, body=TOKENS[0] + TOKENS[1][:9], is_whole=False, usage=Counts(), events=1)
ROW = Row("id-0", "c-0.0", "acme", "complete", USAGE, endpoint="engine-0", charged_pico=COST)
PARTIAL = replace(ROW, state="partial", usage=Counts(100, 64, 1), is_estimated=True, charged_pico=COST - 15_000_000)
RECORD = Record("engine-0", "e1", 100, 64, 2, "stop")
KILLED = Acted(Fault(Kind.KILL, "engine-0"), 10.5, 12.0)
WORLD = World({"large": ["engine-0", "engine-1"]}, ["gateway-0", "gateway-1"], (), 5.0)
CLEAN = Evidence([asked()], [EXCHANGE], [ROW], WORLD, PRICES, [RECORD])
CUT_CLEAN = Evidence([cut()], [CUT_EXCHANGE], [PARTIAL], replace(WORLD, acted=(KILLED,)), PRICES)


def only(found: Audit, total: str) -> str:
    """The one sentence of the one total that is not 0."""
    assert {name for name, sentences in found.totals.items() if sentences} == {total}
    [sentence] = found.totals[total]
    return sentence


def test_evidence_that_agrees_is_clean() -> None:
    found = audit(CLEAN)
    assert found.is_clean
    assert found.counts["requests"] == found.counts["served"] == found.counts["rows complete"] == 1


def test_an_answer_that_its_engine_could_not_finish_is_clean() -> None:
    assert audit(CUT_CLEAN).is_clean


def test_a_request_that_somebody_could_have_served_is_found() -> None:
    failed = asked(status=503, request_id=None, body=b"{}", text="", usage=Counts(), is_whole=False)
    failed.outcome = Outcome.FAILED
    assert "gateway-0: 503" in only(audit(replace(CLEAN, asked=[failed], computed=[], rows=[], records=[])), UNSERVED)


def test_a_request_that_nobody_could_have_served_is_counted_apart() -> None:
    failed = asked(status=503, request_id=None, body=b"{}", text="", usage=Counts(), is_whole=False)
    failed.outcome = Outcome.FAILED
    acted = [Acted(Fault(Kind.KILL, name), 9.0, 12.0) for name in ("engine-0", "engine-1")]
    found = audit(replace(CLEAN, asked=[failed], computed=[], rows=[], records=[], world=replace(WORLD, acted=acted)))
    assert found.is_clean
    assert found.counts["failed when nobody could serve"] == 1


def test_an_answer_cut_without_a_fault_is_found() -> None:
    assert "c-0.0, engine-0 by gateway-0" in only(audit(replace(CUT_CLEAN, world=WORLD)), CUT)


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(TOKENS[1], b""),
        BODY.replace(TOKENS[1], TOKENS[1] * 2),
        BODY.replace(b"~ab.1", b"~ab.2"),
        TOKENS[1] + TOKENS[0] + BODY[len(TOKENS[0] + TOKENS[1]) :],
    ],
    ids=["lost", "doubled", "changed", "swapped"],
)
def test_a_token_lost_doubled_or_changed_on_the_way_is_found(body: bytes) -> None:
    assert "no engine sent" in only(audit(replace(CLEAN, asked=[asked(body=body)])), ALTERED)


def test_a_text_that_was_not_due_is_found() -> None:
    assert "another text" in only(audit(replace(CLEAN, asked=[asked(due="~ab.0~ab.1~ab.2")])), ALTERED)


def test_what_a_cut_answer_had_must_be_the_engines_too() -> None:
    broken = cut()
    broken.tries[0].body = TOKENS[1] + ERROR
    broken.tries[0].text = "~ab.1"
    assert only(audit(replace(CUT_CLEAN, asked=[broken])), ALTERED)


def test_a_lost_row_is_found_from_both_sides() -> None:
    found = audit(replace(CLEAN, rows=[]))
    assert [name for name, sentences in found.totals.items() if sentences] == [LOST]
    by_engine, by_client = found.totals[LOST]
    assert "was sent to engine-0" in by_engine
    assert "was answered by gateway-0" in by_client


def test_a_row_that_its_gateway_died_before_writing_is_no_loss() -> None:
    unseen = asked(status=None, request_id=None, body=b"", text="", usage=Counts(), is_whole=False)
    unseen.outcome = Outcome.FAILED
    acted = [Acted(Fault(Kind.KILL, name), 9.9, 20.0) for name in ("gateway-0", "gateway-1")]
    exchange = replace(EXCHANGE, body=b"", is_whole=False, status=None, usage=Counts(), events=0)
    evidence = Evidence([unseen], [exchange], [], replace(WORLD, acted=acted), PRICES)
    assert audit(evidence).is_clean


@pytest.mark.parametrize("state", ["partial", "interrupted", "failed", "rejected"])
def test_an_answer_that_came_whole_and_is_not_settled_as_such_is_found(state: str) -> None:
    charged = COST if state == "partial" else None
    found = audit(replace(CLEAN, rows=[replace(ROW, state=state, charged_pico=charged)]))
    assert state in only(found, LOST)


def test_an_interrupted_row_that_was_made_good_is_clean() -> None:
    assert audit(replace(CLEAN, rows=[replace(ROW, state="interrupted", is_corrected=True)])).is_clean
    assert not audit(
        replace(CLEAN, rows=[replace(ROW, state="interrupted", is_corrected=True, charged_pico=COST - 1)])
    ).is_clean


def test_a_row_that_names_another_endpoint_is_found() -> None:
    assert "engine-1" in only(audit(replace(CLEAN, rows=[replace(ROW, endpoint="engine-1")])), LOST)


def test_a_doubled_row_is_found_by_its_request_and_by_its_job() -> None:
    twice = audit(replace(CLEAN, rows=[ROW, ROW]))
    assert [name for name, sentences in twice.totals.items() if sentences] == [DOUBLED]
    other = replace(ROW, request_id="id-1")
    found = audit(replace(CLEAN, rows=[ROW, other], computed=[EXCHANGE, replace(EXCHANGE, request_id="id-1")]))
    assert "c-0.0 was sent once, and is in 2 rows" in only(found, DOUBLED)


def test_a_row_that_nobody_asked_for_is_found() -> None:
    other = replace(ROW, request_id="id-1", job="c-9.0")
    found = audit(replace(CLEAN, rows=[ROW, other], computed=[EXCHANGE, replace(EXCHANGE, request_id="id-1")]))
    assert "nobody sent it" in only(found, DOUBLED)


def test_a_row_that_stays_open_is_found() -> None:
    other = replace(ROW, state=None, usage=Counts(), charged_pico=None)
    evidence = replace(CUT_CLEAN, rows=[other])
    assert only(audit(evidence), OPEN)


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, usage=replace(USAGE, output_tokens=3), charged_pico=COST + 15_000_000),
        replace(ROW, charged_pico=COST + 1),
        replace(ROW, charged_pico=None),
    ],
    ids=["other tokens", "another price", "no price"],
)
def test_a_bill_that_is_not_what_was_computed_is_found(row: Row) -> None:
    assert audit(replace(CLEAN, rows=[row])).totals[MISBILLED]


def test_what_two_endpoints_wrote_is_held_against_what_was_due_and_what_the_client_got() -> None:
    joined = TOKENS[0] + b": prefixgate-continued 1\n\n" + BODY[len(TOKENS[0]) :]
    row = replace(ROW, continuations=1, is_estimated=True)
    exchanges = [replace(CUT_EXCHANGE, endpoint="engine-1"), EXCHANGE]
    evidence = replace(CLEAN, asked=[asked(body=joined)], computed=exchanges, rows=[row], records=[])
    assert audit(evidence).is_clean
    twice = asked(body=joined, text="~ab.0~ab.0~ab.1")
    assert audit(replace(evidence, asked=[twice])).totals[ALTERED]
    more = replace(row, usage=replace(USAGE, output_tokens=3), charged_pico=COST + 15_000_000)
    assert "its client got 2" in audit(replace(evidence, rows=[more])).totals[MISBILLED][0]
    assert "is billed 1" in audit(replace(evidence, rows=[replace(row, charged_pico=1)])).totals[MISBILLED][0]
    assert audit(replace(evidence, rows=[replace(row, continuations=0)])).totals[ALTERED]


def test_an_end_that_the_gateway_wrote_itself_is_one_where_answers_are_continued() -> None:
    ended = asked(body=TOKENS[0] + TOKENS[1] + b"data: [DONE]\n\n")
    row = replace(ROW, state="partial", is_estimated=True)
    evidence = replace(CLEAN, asked=[ended], rows=[row], records=[])
    assert audit(replace(evidence, continues=True)).is_clean
    found = audit(evidence)
    assert found.totals[ALTERED]
    assert found.totals[LOST]


def test_a_prompt_that_was_lost_on_its_way_is_billed_to_a_client_who_left_and_counted() -> None:
    left = asked(status=None, request_id=None, body=b"", text="", usage=Counts(), is_whole=False)
    left.outcome = Outcome.FAILED
    tried = (Attempt("engine-0", 0.0, "cut"),)
    row = replace(PARTIAL, usage=Counts(100, None, 0), charged_pico=300_000_000, attempts=tried)
    parted = [Acted(Fault(Kind.PARTITION, name), 9.0, 12.0) for name in ("engine-0", "engine-1")]
    evidence = Evidence([left], [], [row], replace(WORLD, acted=parted), PRICES)
    assert audit(evidence).is_clean
    assert audit(evidence).counts["prompts billed that were lost on their way"] == 1
    elsewhere = replace(row, attempts=(Attempt("engine-2", 0.0, "cut"),))
    assert "no engine was asked" in only(audit(replace(evidence, rows=[elsewhere])), MISBILLED)


def test_a_cut_answer_billed_beyond_what_was_on_the_wire_is_found() -> None:
    row = replace(PARTIAL, usage=Counts(100, 64, 2))
    assert "billed 2 tokens of [1]" in only(audit(replace(CUT_CLEAN, rows=[row])), MISBILLED)


def test_what_nobody_computed_must_not_be_billed() -> None:
    other = replace(ROW, request_id="id-1", job=None)
    assert "no engine was asked" in only(audit(replace(CLEAN, rows=[ROW, other])), MISBILLED)


def test_a_request_that_failed_must_not_cost() -> None:
    other = replace(ROW, request_id="id-1", job=None, state="failed")
    assert "is failed, and costs" in only(audit(replace(CLEAN, rows=[ROW, other])), MISBILLED)


def test_an_engine_that_remembers_otherwise_is_found() -> None:
    found = audit(replace(CLEAN, records=[replace(RECORD, cached_tokens=0)]))
    assert "remembers" in only(found, OTHERWISE)


def test_an_engine_that_does_not_report_cached_tokens_is_no_liar() -> None:
    usage = replace(USAGE, cached_tokens=None)
    cost = 100 * 3_000_000 + 2 * 15_000_000
    evidence = replace(
        CLEAN,
        asked=[asked(usage=usage)],
        computed=[replace(EXCHANGE, usage=usage)],
        rows=[replace(ROW, usage=usage, charged_pico=cost)],
    )
    assert audit(evidence).is_clean


def test_what_was_found_in_the_fleet_is_a_total() -> None:
    assert only(audit(replace(CLEAN, left_over=["gateway-0 holds 1"])), "reservations leaked") == "gateway-0 holds 1"
    assert only(audit(replace(CLEAN, leaked=["a.log has a prompt"])), "prompts or secrets leaked")
