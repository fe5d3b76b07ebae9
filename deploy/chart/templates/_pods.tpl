{{- /* Parts of several templates: the claim, where pods go, and the pods of scheduler and workers. */ -}}

{{- define "mscam.claim" -}}
{{ .Values.storage.existingClaim | default "mscam" }}
{{- end }}

{{- /* Files of a role in its secret: cert-manager gives its keys the same name in each. */ -}}
{{- define "mscam.certificates" -}}
{{- if .Values.certManager.enabled }}
- {key: ca.crt, path: ca.pem}
- {key: tls.crt, path: {{ .role }}.pem}
- {key: tls.key, path: {{ .role }}-key.pem}
{{- else }}
- {key: ca.pem, path: ca.pem}
- {key: {{ .role }}.pem, path: {{ .role }}.pem}
- {key: {{ .role }}-key.pem, path: {{ .role }}-key.pem}
{{- end }}
{{- end }}

{{- define "mscam.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "mscam.pull" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "mscam.worker" -}}
serviceAccountName: mscam
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: worker
    image: {{ .Values.image }}
    imagePullPolicy: {{ .Values.imagePullPolicy }}
    args:
      - dask
      - worker
      - --name=$(DASK_WORKER_NAME)
      - --nworkers=1
      - --nthreads=1
      - --memory-limit={{ .Values.worker.memoryLimit }}
      - --dashboard-address=:8790
      - --local-directory=/tmp
      - --death-timeout=120
      - $(DASK_SCHEDULER_ADDRESS)
    env:
      # The operator would set tcp://; the label is its own, so the same lines serve every cluster.
      - name: MSCAM_CLUSTER
        valueFrom:
          fieldRef: {fieldPath: "metadata.labels['dask.org/cluster-name']"}
      - {name: DASK_SCHEDULER_ADDRESS, value: "tls://$(MSCAM_CLUSTER)-scheduler:8786"}
      - {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
      - {name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, value: /tls/ca.pem}
      - {name: DASK_DISTRIBUTED__COMM__TLS__WORKER__CERT, value: /tls/worker.pem}
      - {name: DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY, value: /tls/worker-key.pem}
    envFrom:
      - secretRef: {name: {{ .Values.secrets.storage }}, optional: true}
    ports:
      - {name: http-dashboard, containerPort: 8790}
    readinessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 5
    livenessProbe:
      httpGet: {path: /health, port: http-dashboard}
      initialDelaySeconds: 30
      periodSeconds: 15
      failureThreshold: 8
    resources:
      {{- toYaml .Values.worker.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: tls, mountPath: /tls, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      - {name: mscam, mountPath: /mscam}
volumes:
  - name: tls
    secret:
      secretName: {{ .Values.secrets.worker }}
      defaultMode: 0440
      items:
        {{- include "mscam.certificates" (dict "Values" .Values "role" "worker") | nindent 8 }}
  - name: tmp
    emptyDir: {sizeLimit: 8Gi}
  - name: mscam
    persistentVolumeClaim: {claimName: {{ include "mscam.claim" . }}}
{{- include "mscam.placement" .Values.worker }}
{{- include "mscam.pull" . }}
{{- end }}

{{- define "mscam.scheduler" -}}
serviceAccountName: mscam
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: scheduler
    image: {{ .Values.image }}
    imagePullPolicy: {{ .Values.imagePullPolicy }}
    args:
      - dask
      - scheduler
      - --protocol=tls
      - --port=8786
      - --dashboard-address=:8787
      - --preload=mscam_dask.monitor
    env:
      # The operator would set tcp://; the label is its own, so the same lines serve every cluster.
      - name: MSCAM_CLUSTER
        valueFrom:
          fieldRef: {fieldPath: "metadata.labels['dask.org/cluster-name']"}
      - {name: DASK_SCHEDULER_ADDRESS, value: "tls://$(MSCAM_CLUSTER)-scheduler:8786"}
      - {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
      - {name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, value: /tls/ca.pem}
      - {name: DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__CERT, value: /tls/scheduler.pem}
      - {name: DASK_DISTRIBUTED__COMM__TLS__SCHEDULER__KEY, value: /tls/scheduler-key.pem}
      # The operator asks here how many workers the tasks want, and which may go (adaptive scaling).
      - name: DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES
        value: >-
          ["distributed.http.scheduler.prometheus", "distributed.http.scheduler.info",
          "distributed.http.scheduler.json", "distributed.http.health",
          "distributed.http.statics", "distributed.http.scheduler.api"]
      {{- if .adaptive }}
      # So many seconds of tasks may wait for a worker before another is wanted. Tasks of a fit take
      # less than the default of 5 s, which would shrink the cluster in the middle of one.
      - {name: DASK_DISTRIBUTED__ADAPTIVE__TARGET_DURATION, value: 200ms}
      {{- end }}
    ports:
      - {name: tls-comm, containerPort: 8786}
      - {name: http-dashboard, containerPort: 8787}
    readinessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 5
    livenessProbe:
      httpGet: {path: /health, port: http-dashboard}
      initialDelaySeconds: 30
      periodSeconds: 15
      failureThreshold: 8
    resources:
      {{- toYaml .Values.scheduler.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: tls, mountPath: /tls, readOnly: true}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: tls
    secret:
      secretName: {{ .Values.secrets.scheduler }}
      defaultMode: 0440
      items:
        {{- include "mscam.certificates" (dict "Values" .Values "role" "scheduler") | nindent 8 }}
  - name: tmp
    emptyDir: {sizeLimit: 8Gi}
{{- include "mscam.placement" .Values.scheduler }}
{{- include "mscam.pull" . }}
{{- end }}
