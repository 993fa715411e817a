{{- define "tessera.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "tessera.selector" -}}
app.kubernetes.io/name: tessera
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tessera.labels" -}}
{{ include "tessera.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The driver's name without its first part: gpu.tessera.dev gives mig.tessera.dev. */}}
{{- define "tessera.domain" -}}
{{- regexReplaceAll "^[^.]+[.]" .Values.driverName "" -}}
{{- end -}}

{{/* Settings that have a structure; the others are variables of the container. */}}
{{- define "tessera.settings" -}}
{{- with .Values.plugin.gpus }}
gpus:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tessera.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
