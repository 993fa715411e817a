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

{{/* What the schema cannot say in words that help. */}}
{{- define "tessera.check" -}}
{{- if regexMatch "^mig[-.]" .Values.driverName -}}
{{- fail (printf "driverName: %s begins like the DeviceClasses of partitions; take another first part, such as gpu" .Values.driverName) -}}
{{- end -}}
{{- $names := list .Values.deviceClasses.extendedResourceName -}}
{{- range .Values.deviceClasses.mig -}}
{{- if not (kindIs "string" .) -}}{{- $names = append $names .extendedResourceName -}}{{- end -}}
{{- end -}}
{{- range $names | compact -}}
{{- if regexMatch "(^|[.])kubernetes[.]io/" . -}}
{{- fail (printf "deviceClasses: extendedResourceName %s: kubernetes.io belongs to Kubernetes; take a domain of yours" .) -}}
{{- end -}}
{{- end -}}
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
