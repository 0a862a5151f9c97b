{{- define "prefixgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "prefixgate.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "prefixgate.gatewaySelector" -}}
{{ include "prefixgate.selector" . }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "prefixgate.valkeySelector" -}}
{{ include "prefixgate.selector" . }}
app.kubernetes.io/component: valkey
{{- end -}}

{{- define "prefixgate.labels" -}}
{{ include "prefixgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "prefixgate.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "prefixgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "prefixgate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "prefixgate.secretName" -}}
{{- default (include "prefixgate.fullname" .) .Values.secrets.existing.name -}}
{{- end -}}

{{/* What the Secret has, or is to have: JSON, key to text; the text of an existing one is not known and empty. */}}
{{- define "prefixgate.secretData" -}}
{{- $data := dict -}}
{{- if .Values.secrets.existing.name -}}
{{- range .Values.secrets.existing.keys -}}{{- $_ := set $data . "" -}}{{- end -}}
{{- else -}}
{{- $names := dict "admin-token" "adminToken" "salt-secret" "saltSecret" "keys.yaml" "keys" "redis-url" "redisUrl" "redis-password" "redisPassword" "postgres-url" "postgresUrl" "postgres-password" "postgresPassword" -}}
{{- range $key, $value := $names -}}
{{- with get $.Values.secrets $value -}}{{- $_ := set $data $key . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $data -}}
{{- end -}}

{{/* Whether all replicas share an index: "true" or nothing. */}}
{{- define "prefixgate.sharesIndex" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- if or .Values.valkey.enabled (hasKey $data "redis-url") (dig "index" "redis_url" "" .Values.config) -}}true{{- end -}}
{{- end -}}

{{/* Whether the ledger is in PostgreSQL: "true" or nothing. */}}
{{- define "prefixgate.sharesLedger" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- if or (hasKey $data "postgres-url") (dig "ledger" "url" "" .Values.config) -}}true{{- end -}}
{{- end -}}

{{/* prefixgate.yaml: what the chart knows, under what the values say. */}}
{{- define "prefixgate.config" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- $index := dict -}}
{{- if .Values.valkey.enabled -}}
{{- $_ := set $index "redis_url" (printf "redis://%s-valkey:6379/0" (include "prefixgate.fullname" .)) -}}
{{- $_ := set $index "max_bytes" (mul 3 1024 1024 1024) -}}
{{- else if not (include "prefixgate.sharesIndex" .) -}}
{{- $_ := set $index "max_bytes" (mul 512 1024 1024) -}}
{{- end -}}
{{- if hasKey $data "redis-password" -}}{{- $_ := set $index "redis_password_env" "REDIS_PASSWORD" -}}{{- end -}}
{{- $ledger := dict "path" "/var/lib/prefixgate/prefixgate.db" "spool" "/var/lib/prefixgate/spool" -}}
{{- if hasKey $data "postgres-password" -}}{{- $_ := set $ledger "password_env" "POSTGRES_PASSWORD" -}}{{- end -}}
{{- $known := dict "listen" (dict "host" "0.0.0.0" "port" 8080) "index" $index "ledger" $ledger -}}
{{- if hasKey $data "admin-token" -}}{{- $_ := set $known "admin_token_file" "/run/secrets/prefixgate/admin-token" -}}{{- end -}}
{{- if hasKey $data "salt-secret" -}}{{- $_ := set $known "salt_secret_file" "/run/secrets/prefixgate/salt-secret" -}}{{- end -}}
{{- if hasKey $data "keys.yaml" -}}{{- $_ := set $known "keys_file" "/run/secrets/prefixgate/keys.yaml" -}}{{- end -}}
{{- toYaml (mustMergeOverwrite $known (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The three times of a stopping gateway, rounded up, and a margin; defaults as in docs/config.md. */}}
{{- define "prefixgate.terminationGracePeriodSeconds" -}}
{{- $notice := dig "limits" "drain_notice_s" 0.0 .Values.config -}}
{{- $idle := dig "limits" "close_idle_s" 2.0 .Values.config -}}
{{- $drain := dig "limits" "drain_s" 30.0 .Values.config -}}
{{- add (addf $notice $idle $drain | ceil | int64) (int64 .Values.terminationMarginSeconds) -}}
{{- end -}}

{{- define "prefixgate.port" -}}
{{- dig "listen" "port" 8080 .Values.config | int64 -}}
{{- end -}}

{{- define "prefixgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Replicas that do not share a ledger and an index would each be a gateway of its own. */}}
{{- define "prefixgate.refuse" -}}
{{- $several := or .Values.autoscaling.enabled (gt (int64 .Values.replicas) 1) -}}
{{- if and $several (not (include "prefixgate.sharesLedger" .)) -}}
{{- fail "several replicas need one ledger: set secrets.postgresUrl, config.ledger.url, or postgres-url in secrets.existing.keys" -}}
{{- end -}}
{{- if and $several (not (include "prefixgate.sharesIndex" .)) -}}
{{- fail "several replicas share index and limits: set valkey.enabled, secrets.redisUrl, config.index.redis_url, or redis-url in secrets.existing.keys" -}}
{{- end -}}
{{- if and $several .Values.persistence.enabled -}}
{{- fail "persistence is a volume of one pod: with several replicas leave it off; the ledger is in PostgreSQL" -}}
{{- end -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- if and .Values.valkey.enabled (or (hasKey $data "redis-url") (dig "index" "redis_url" "" .Values.config)) -}}
{{- fail "valkey.enabled and the URL of another Redis: choose one" -}}
{{- end -}}
{{- if eq (int64 (include "prefixgate.port" .)) 0 -}}
{{- fail "config.listen.port is 0: a Service needs a port that is known" -}}
{{- end -}}
{{- end -}}
