{{/* Names and labels.
52 characters are what a StatefulSet's name may have, for its pods' labels add 11. What is cut carries a hash of the whole, so
that two names which begin alike stay two. A release may have dots in its name, a Service not. */}}
{{- define "prefixgate.cut" -}}
{{- $text := index . 0 | replace "." "-" -}}
{{- $most := index . 1 | int -}}
{{- if gt (len $text) $most -}}
{{- printf "%s-%s" ($text | trunc (int (sub $most 9)) | trimSuffix "-") (sha256sum $text | trunc 8) -}}
{{- else -}}
{{- $text -}}
{{- end -}}
{{- end -}}

{{- define "prefixgate.wholeName" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- end -}}

{{- define "prefixgate.fullname" -}}
{{- include "prefixgate.cut" (list (include "prefixgate.wholeName" .) 52) -}}
{{- end -}}

{{/* Of a part of the release: (list . "valkey"). */}}
{{- define "prefixgate.partName" -}}
{{- $part := index . 1 -}}
{{- $whole := include "prefixgate.wholeName" (index . 0) -}}
{{- printf "%s-%s" (include "prefixgate.cut" (list $whole (sub 51 (len $part)))) $part -}}
{{- end -}}

{{- define "prefixgate.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* (list . "gateway") */}}
{{- define "prefixgate.partSelector" -}}
{{ include "prefixgate.selector" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "prefixgate.labels" -}}
{{ include "prefixgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end -}}

{{/* (list . "gateway") */}}
{{- define "prefixgate.partLabels" -}}
{{ include "prefixgate.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Of values like `image`, with the tag where there is none: (list .Values.image .Chart.AppVersion) */}}
{{- define "prefixgate.image" -}}
{{- $image := index . 0 -}}
{{- $tag := default (index . 1) $image.tag -}}
{{- printf "%s:%s" $image.repository $tag -}}{{- with $image.digest -}}@{{ . }}{{- end -}}
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
