{{- define "causeway.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "causeway.secret" -}}
{{ .Values.secret.existing | default (printf "%s-key" (include "causeway.name" .)) }}
{{- end }}

{{/* Call with a list: the context and the component. */}}
{{- define "causeway.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ $context.Chart.Name }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "causeway.labels" -}}
{{ include "causeway.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{/* Call with a list: the context and one of `images`. */}}
{{- define "causeway.image" -}}
{{- $context := index . 0 -}}
{{- $image := index . 1 -}}
image: {{ printf "%s:%s" $image.repository ($image.tag | default $context.Chart.AppVersion) | quote }}
imagePullPolicy: {{ $context.Values.images.pullPolicy }}
{{- end }}
