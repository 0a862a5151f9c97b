{{/* What the Secret has, or is to have: JSON, key to text; the text of an existing one is not known and empty. */}}
{{- define "prefixgate.secretData" -}}
{{- $data := dict -}}
{{- if .Values.secrets.existing.name -}}
{{- range .Values.secrets.existing.keys -}}{{- $_ := set $data . "" -}}{{- end -}}
{{- else -}}
{{- $names := dict "admin-token" "adminToken" "salt-secret" "saltSecret" "ui-token" "uiToken" "keys.yaml" "keys" "redis-url" "redisUrl" "redis-password" "redisPassword" "postgres-url" "postgresUrl" "postgres-password" "postgresPassword" -}}
{{- range $key, $value := $names -}}
{{- with get $.Values.secrets $value -}}{{- $_ := set $data $key . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $data -}}
{{- end -}}

{{/* Those that are files in /run/secrets/prefixgate: JSON, a list of keys. */}}
{{- define "prefixgate.secretFiles" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- $found := list -}}
{{- range list "admin-token" "keys.yaml" "salt-secret" "ui-token" -}}
{{- if hasKey $data . -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Those that are variables. */}}
{{- define "prefixgate.secretVariables" -}}
{{- $data := include "prefixgate.secretData" (index . 0) | fromJson -}}
{{- $name := index . 1 -}}
{{- range $key, $variable := index . 2 }}
{{- if hasKey $data $key }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef: {name: {{ $name | quote }}, key: {{ $key }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Whether all replicas share an index: "true" or nothing. */}}
{{- define "prefixgate.sharesIndex" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- if or .Values.valkey.enabled (hasKey $data "redis-url") (dig "index" "redis_url" "" .Values.config) -}}true{{- end -}}
{{- end -}}

{{/* Whether the ledger is in PostgreSQL: "true" or nothing. */}}
{{- define "prefixgate.sharesLedger" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- if or .Values.postgres.enabled (hasKey $data "postgres-url") (dig "ledger" "url" "" .Values.config) -}}true{{- end -}}
{{- end -}}

{{/* What the chart knows of prefixgate.yaml, under what the values say, as JSON. */}}
{{- define "prefixgate.configTree" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- $index := dict -}}
{{- if .Values.valkey.enabled -}}
{{- $_ := set $index "redis_url" (printf "redis://%s:6379/0" (include "prefixgate.partName" (list . "valkey"))) -}}
{{- $_ := set $index "max_bytes" (mul 3 1024 1024 1024) -}}
{{- else if not (include "prefixgate.sharesIndex" .) -}}
{{- $_ := set $index "max_bytes" (mul 512 1024 1024) -}}
{{- end -}}
{{- if hasKey $data "redis-password" -}}{{- $_ := set $index "redis_password_env" "REDIS_PASSWORD" -}}{{- end -}}
{{- $ledger := dict "path" "/var/lib/prefixgate/prefixgate.db" "spool" "/var/lib/prefixgate/spool" -}}
{{- if .Values.postgres.enabled -}}
{{- $_ := set $ledger "url" (printf "postgresql://prefixgate@%s:5432/prefixgate" (include "prefixgate.partName" (list . "postgres"))) -}}
{{- end -}}
{{- if hasKey $data "postgres-password" -}}{{- $_ := set $ledger "password_env" "POSTGRES_PASSWORD" -}}{{- end -}}
{{- $known := dict "listen" (dict "host" "0.0.0.0" "port" 8080) "index" $index "ledger" $ledger -}}
{{- $folder := "/run/secrets/prefixgate" -}}
{{- if hasKey $data "admin-token" -}}{{- $_ := set $known "admin_token_file" (printf "%s/admin-token" $folder) -}}{{- end -}}
{{- if hasKey $data "salt-secret" -}}{{- $_ := set $known "salt_secret_file" (printf "%s/salt-secret" $folder) -}}{{- end -}}
{{- if hasKey $data "ui-token" -}}{{- $_ := set $known "ui" (dict "token_file" (printf "%s/ui-token" $folder)) -}}{{- end -}}
{{- if hasKey $data "keys.yaml" -}}{{- $_ := set $known "keys_file" (printf "%s/keys.yaml" $folder) -}}{{- end -}}
{{- toJson (mustMergeOverwrite $known (deepCopy .Values.config)) -}}
{{- end -}}

{{- define "prefixgate.config" -}}
{{- include "prefixgate.configTree" . | fromJson | toYaml -}}
{{- end -}}

{{/* That of the endpoint picker: it is one process, has no data plane of its own, and may differ by `epp.config`. */}}
{{- define "prefixgate.eppConfig" -}}
{{- $tree := include "prefixgate.configTree" . | fromJson -}}
{{- $_ := set $tree "workers" 1 -}}
{{- $_ := unset $tree "supervised" -}}
{{- $_ := unset $tree "continuation" -}}
{{- $_ := unset $tree "ui" -}}
{{- toYaml (mustMergeOverwrite $tree (dict "epp" (dict "port" 9002)) (deepCopy .Values.epp.config)) -}}
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

{{/* Whether pods have volumes of their own, for the spool: then they are of a StatefulSet. "true" or nothing. */}}
{{- define "prefixgate.ownVolumes" -}}
{{- if and .Values.persistence.enabled (include "prefixgate.sharesLedger" .) (not .Values.persistence.existingClaim) -}}true{{- end -}}
{{- end -}}

{{- define "prefixgate.kind" -}}
{{- ternary "StatefulSet" "Deployment" (eq (include "prefixgate.ownVolumes" .) "true") -}}
{{- end -}}

{{/* Whether there are gateways at all, or only endpoint pickers: "true" or nothing. */}}
{{- define "prefixgate.hasGateways" -}}
{{- if or .Values.autoscaling.enabled (gt (int64 .Values.replicas) 0) -}}true{{- end -}}
{{- end -}}

{{- define "prefixgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Where pods go, of values with these names. */}}
{{- define "prefixgate.placing" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "prefixgate.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
