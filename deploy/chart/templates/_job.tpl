{{- define "mscam.job" -}}
apiVersion: kubernetes.dask.org/v1
kind: DaskJob
metadata:
  name: mscam-nightly
  namespace: {{ .Release.Namespace }}
spec:
  job:
    spec:
      serviceAccountName: mscam
      automountServiceAccountToken: false
      enableServiceLinks: false
      # With any other policy the pod never fails: the operator would not end the job nor free the
      # cluster. What passes by itself (75) create_daskjob.py tries again; what was done is kept.
      restartPolicy: Never
      activeDeadlineSeconds: 27000   # half an hour before the CronJob's, which looks how it ended
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {type: RuntimeDefault}
      initContainers:
        - name: wait   # the operator makes this pod and the cluster at the same time
          image: {{ .Values.image }}
          imagePullPolicy: {{ .Values.imagePullPolicy }}
          args:
            - python
            - /nightly/wait_for_workers.py
            - http://$(MSCAM_CLUSTER)-scheduler:8787
          env:
            - name: MSCAM_CLUSTER
              valueFrom:
                fieldRef: {fieldPath: "metadata.labels['dask.org/cluster-name']"}
          resources:
            requests: {cpu: 10m, memory: 64Mi}
            limits: {memory: 256Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: nightly, mountPath: /nightly, readOnly: true}
      containers:
        - name: run
          image: {{ .Values.image }}
          imagePullPolicy: {{ .Values.imagePullPolicy }}
          args:
            - mscam-dask
            - run
            - /pipeline/nightly.toml
            - --plain
          env:
            # The operator would set tcp://; the label is its own, so the same lines serve every cluster.
            - name: MSCAM_CLUSTER
              valueFrom:
                fieldRef: {fieldPath: "metadata.labels['dask.org/cluster-name']"}
            - {name: DASK_SCHEDULER_ADDRESS, value: "tls://$(MSCAM_CLUSTER)-scheduler:8786"}
            - {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
            - {name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, value: /tls/ca.pem}
            - {name: DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT, value: /tls/client.pem}
            - {name: DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY, value: /tls/client-key.pem}
            - {name: MSCAM_EXECUTION__SCHEDULER, value: "$(DASK_SCHEDULER_ADDRESS)"}
          envFrom:
            - secretRef: {name: {{ .Values.secrets.storage }}, optional: true}
          resources:
            {{- toYaml .Values.run.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tls, mountPath: /tls, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            - {name: mscam, mountPath: /mscam}
            - {name: pipeline, mountPath: /pipeline, readOnly: true}
      volumes:
        - name: tls
          secret:
            secretName: {{ .Values.secrets.client }}
            defaultMode: 0440
            items:
              {{- include "mscam.certificates" (dict "Values" .Values "role" "client") | nindent 14 }}
        - name: tmp
          emptyDir: {sizeLimit: 8Gi}
        - name: mscam
          persistentVolumeClaim: {claimName: {{ include "mscam.claim" . }}}
        - name: pipeline
          configMap: {name: mscam-pipeline}
        - name: nightly
          configMap: {name: mscam-nightly}
      {{- include "mscam.placement" .Values.run | nindent 6 }}
      {{- include "mscam.pull" . | nindent 6 }}
  cluster:
    spec:
      worker:
        replicas: {{ .Values.nightly.workers }}
        spec: {{- include "mscam.worker" . | nindent 10 }}
      scheduler:
        spec: {{- include "mscam.scheduler" . | nindent 10 }}
        service:
          type: ClusterIP
          selector:
            dask.org/cluster-name: mscam-nightly
            dask.org/component: scheduler
          ports:
            - {name: tcp-comm, protocol: TCP, port: 8786, targetPort: tls-comm}
            - {name: http-dashboard, protocol: TCP, port: 8787, targetPort: http-dashboard}
{{- end }}
