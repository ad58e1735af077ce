{{- define "async-processor.pod" -}}
metadata:
  labels:
    {{- include "async-processor.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- /* The environment is read once, so a changed Secret always replaces the pods. */}}
    checksum/secret: {{ include (print .Template.BasePath "/secret.yaml") . | sha256sum }}
    {{- /* Nor does a running daemon take these over. */}}
    checksum/needs-restart: {{ include "async-processor.needsRestart" . | sha256sum }}
    {{- if eq .Values.configReload "rollout" }}
    checksum/config: {{ toYaml .Values.config | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "async-processor.serviceAccountName" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
  terminationGracePeriodSeconds: {{ include "async-processor.gracePeriod" . }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    - name: async-processor
      {{- include "async-processor.container" . | nindent 6 }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "async-processor.volumes" . | nindent 4 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $own := dict "labelSelector" (dict "matchLabels" (include "async-processor.selectorLabels" $ | fromYaml)) }}
    {{- range . }}
    - {{- merge (deepCopy .) $own | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* The settings that only a restart can change, each on a line. */}}
{{- define "async-processor.needsRestart" -}}
{{- range $path := .Files.Lines "files/needs-restart.txt" | compact }}
{{- $value := $.Values.config }}
{{- range splitList "." $path }}
{{- $value = get ($value | default dict) . }}
{{- end }}
{{ $path }}: {{ $value | toJson }}
{{- end }}
{{- /* By its first queue's name a replica finds those that share its gates. */}}
{{- if contains "\"shared\":true" (toJson .Values.config) }}
first queue: {{ include "async-processor.firstQueue" . }}
{{- end }}
{{- end }}

{{- define "async-processor.container" -}}
image: {{ include "async-processor.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - run
  - --config
  - /etc/async-processor/config/config.yaml
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "async-processor.env" . }}
env:
  {{- . | trim | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: metrics
    containerPort: {{ include "async-processor.metricsPort" . }}
    protocol: TCP
  - name: health
    containerPort: {{ include "async-processor.healthPort" . }}
    protocol: TCP
startupProbe:
  httpGet: {path: /healthz, port: health}
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  {{- toYaml .Values.readinessProbe | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  {{- /* A folder, not a file in it: only so a changed ConfigMap arrives in a running pod. */}}
  - name: config
    mountPath: /etc/async-processor/config
    readOnly: true
  {{- if .Values.tls.existingSecret }}
  - name: tls
    mountPath: {{ .Values.tls.mountPath }}
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "async-processor.env" -}}
{{- $own := include "async-processor.fullname" . -}}
{{- with .Values.broker }}
{{- if or .url .existingSecret }}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret | default $own }}
      key: {{ ternary .key "url" (ne .existingSecret "") }}
{{- end }}
{{- end }}
{{- with .Values.inference }}
{{- if or .apiKey .existingSecret }}
- name: INFERENCE_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret | default $own }}
      key: {{ ternary .key "api-key" (ne .existingSecret "") }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "async-processor.volumes" -}}
- name: config
  configMap:
    name: {{ include "async-processor.fullname" . }}
{{- with .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
