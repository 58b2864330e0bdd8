//! Objects that scenarios apply.

use crate::images::SHELL;

/// Returns a claim of the class `memlane` for a pod, with a size in MiB.
pub(crate) fn claim(name: &str, size_mib: u32) -> String {
    claim_of(name, size_mib, "memlane", "")
}

/// Same, with another class and more lines of the specification.
pub(crate) fn claim_of(name: &str, size_mib: u32, class: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec:\n  \
         storageClassName: {class}\n  accessModes: [ReadWriteOncePod]\n  \
         resources: {{requests: {{storage: {size_mib}Mi}}}}\n{more}---\n"
    )
}

/// Returns a pod that runs a shell command with the claim at `/data`.
pub(crate) fn pod(name: &str, claim: &str, command: &str) -> String {
    pod_of(name, claim, SHELL, "volumeMounts: [{name: data, mountPath: /data}]", command)
}

/// Same, with another image, and another access to the volume.
pub(crate) fn pod_of(name: &str, claim: &str, image: &str, way: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n    - name: only\n      \
         image: {image}\n      command: [sh, -ec, {command:?}]\n      {way}\n  \
         volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]\n---\n"
    )
}

/// Returns a snapshot of a claim.
pub(crate) fn snapshot(name: &str, claim: &str) -> String {
    format!(
        "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {{name: {name}}}\n\
         spec:\n  volumeSnapshotClassName: memlane\n  \
         source: {{persistentVolumeClaimName: {claim}}}\n---\n"
    )
}
