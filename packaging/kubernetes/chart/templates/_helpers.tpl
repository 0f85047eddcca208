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

{{/* The addresses of the servers, with commas between them. Call with a list: the context, the named ones, and the value that
names them. */}}
{{- define "causeway.servers" -}}
{{- $context := index . 0 -}}
{{- $named := index . 1 -}}
{{- $server := $context.Values.server -}}
{{- $name := include "causeway.name" $context -}}
{{- $namespace := $context.Release.Namespace -}}
{{- $port := $server.port | int -}}
{{- if $named -}}
{{ join "," $named }}
{{- else if not $server.enabled -}}
{{ fail (printf "%s must name the servers where server.enabled is false" (index . 2)) }}
{{- else if eq $server.kind "StatefulSet" -}}
{{- range $number := until ($server.replicas | int) -}}
{{- if $number }},{{ end }}{{ printf "%s-server-%d.%s-servers.%s.svc:%d" $name $number $name $namespace $port }}
{{- end -}}
{{- else -}}
{{ printf "%s.%s.svc:%d" $name $namespace $port }}
{{- end -}}
{{- end }}
