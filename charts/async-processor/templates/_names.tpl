{{- define "async-processor.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "async-processor.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "async-processor.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "async-processor.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "async-processor.selectorLabels" -}}
app.kubernetes.io/name: {{ include "async-processor.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "async-processor.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "async-processor.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every object begins with; the argument is a list of the root and the name's suffix. */}}
{{- define "async-processor.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "async-processor.fullname" $root }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "async-processor.labels" $root | nindent 2 }}
{{- end }}

{{- define "async-processor.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "async-processor.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "async-processor.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* What the daemon calls an entry of the queues. */}}
{{- define "async-processor.queueName" -}}
{{ .queue_name | default .subscriber_id | default "request-sortedset" }}
{{- end }}

{{/* A warning for a list of a place and its gate, where each replica would use the whole of it. */}}
{{- define "async-processor.unshared" -}}
{{- $gate := index . 1 | default dict -}}
{{- $counts := list "constant" "redis-quota" "redis-leased-rate" -}}
{{- if not (or $gate.shared (has ($gate.type | default "constant") $counts)) }}

WARNING: there are several replicas, and the gate of {{ index . 0 }} is not `shared: true`: each replica uses the whole of its budget.
{{- end }}
{{- end }}

{{/* The entries of the queues: of Pub/Sub they are called topics. As JSON. */}}
{{- define "async-processor.queues" -}}
{{- $transport := .Values.config.transport | default dict -}}
{{- $transport.queues | default $transport.topics | default list | toJson }}
{{- end }}

{{- define "async-processor.firstQueue" -}}
{{- include "async-processor.queues" . | fromJsonArray | first | include "async-processor.queueName" }}
{{- end }}

{{- define "async-processor.healthPort" -}}
{{- dig "server" "health_port" 8081 .Values.config }}
{{- end }}

{{- define "async-processor.metricsPort" -}}
{{- dig "server" "metrics_port" 9090 .Values.config }}
{{- end }}

{{/* What this release's series are told by; the second label is there because of our PodMonitor. */}}
{{- define "async-processor.seriesLabels" -}}
namespace: {{ .Release.Namespace | quote }}
{{- if .Values.podMonitor.enabled }}
app_kubernetes_io_instance: {{ .Release.Name | quote }}
{{- end }}
{{- end }}

{{/* The matchers of this release's series. */}}
{{- define "async-processor.seriesSelector" -}}
{{- $matchers := list }}
{{- range $label, $value := include "async-processor.seriesLabels" . | fromYaml }}
{{- $matchers = append $matchers (printf "%s=%q" $label $value) }}
{{- end }}
{{- .Values.seriesSelector | default (join ", " $matchers) }}
{{- end }}
