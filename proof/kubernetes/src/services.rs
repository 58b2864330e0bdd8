//! Settings and start of the programs of a cluster.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use system::{Background, Tool};

use crate::images::PAUSE;

/// Name of the only node.
pub(crate) const NODE: &str = "node-1";

const NODE_ADDRESS: &str = "10.88.0.1";

/// Address at which pods find the API server: the first service address. Without a proxy, it is an
/// address of the host itself.
const API_ADDRESS: &str = "https://10.96.0.1";

const LOGS: &str = "/var/log";

/// Locations of the files that programs share.
pub(crate) struct Services {
    secrets: PathBuf,
    plugins: PathBuf,
    groups: String,
}

impl Services {
    /// Writes the settings of all programs. `groups` is the control group of all pods.
    pub(crate) fn prepare(folder: &Path, debian: &Path, groups: &str) -> Result<Self> {
        let secrets = folder.join("secrets");
        let plugins = debian.join("usr/lib/cni");
        let services = Self { secrets, plugins, groups: groups.to_owned() };
        Tool::new("openssl genrsa -out")
            .arg(services.secret("accounts.key"))
            .arg("2048")
            .check()?;
        let token = Tool::new("openssl rand -hex 16").check()?;
        let token = token.trim();
        let users = format!("{token},admin,admin,\"system:masters\"\n");
        services.write("tokens.csv", &users)?;
        services.write("kubeconfig", &services.kubeconfig(token))?;
        services.write("containerd.toml", &services.containerd_settings())?;
        services.write("kubelet.yaml", &services.kubelet_settings())?;
        let networks = Path::new("/etc/cni/net.d");
        fs::create_dir_all(networks).context("cannot make a folder for networks")?;
        fs::write(networks.join("10-pods.conflist"), NETWORK).context("cannot write a network")?;
        Ok(services)
    }

    pub(crate) fn etcd(&self) -> Result<Background> {
        start("etcd", &["--data-dir=/var/lib/etcd", "--log-level=warn"].map(str::to_owned))
    }

    pub(crate) fn api_server(&self) -> Result<Background> {
        start(
            "kube-apiserver",
            &[
                "--etcd-servers=http://127.0.0.1:2379".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
                format!("--advertise-address={NODE_ADDRESS}"),
                "--secure-port=443".to_owned(),
                format!("--cert-dir={}", self.secrets.display()),
                "--allow-privileged".to_owned(),
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                self.option("--token-auth-file", "tokens.csv"),
                self.option("--service-account-key-file", "accounts.key"),
                self.option("--service-account-signing-key-file", "accounts.key"),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            ],
        )
    }

    pub(crate) fn controllers(&self) -> Result<Background> {
        start(
            "kube-controller-manager",
            &[
                self.option("--kubeconfig", "kubeconfig"),
                self.option("--root-ca-file", "apiserver.crt"),
                self.option("--service-account-private-key-file", "accounts.key"),
                "--leader-elect=false".to_owned(),
            ],
        )
    }

    pub(crate) fn scheduler(&self) -> Result<Background> {
        let words = [self.option("--kubeconfig", "kubeconfig"), "--leader-elect=false".to_owned()];
        start("kube-scheduler", &words)
    }

    pub(crate) fn containerd(&self) -> Result<Background> {
        start("containerd", &[self.option("--config", "containerd.toml")])
    }

    pub(crate) fn kubelet(&self) -> Result<Background> {
        start(
            "kubelet",
            &[
                self.option("--kubeconfig", "kubeconfig"),
                self.option("--config", "kubelet.yaml"),
                format!("--hostname-override={NODE}"),
                format!("--node-ip={NODE_ADDRESS}"),
            ],
        )
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.secrets.join(name)
    }

    fn option(&self, option: &str, secret: &str) -> String {
        format!("{option}={}", self.secret(secret).display())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.secret(name), text).with_context(|| format!("cannot write {name}"))
    }

    fn kubeconfig(&self, token: &str) -> String {
        let authority = self.secret("apiserver.crt");
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
             clusters: [{{name: here, cluster: {{server: \"{API_ADDRESS}\", \
             certificate-authority: {}}}}}]\n\
             users: [{{name: admin, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: here, context: {{cluster: here, user: admin}}}}]\n",
            authority.display()
        )
    }

    /// Without lowering OOM scores, which not every host permits.
    fn containerd_settings(&self) -> String {
        format!(
            r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{}"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
            self.plugins.display()
        )
    }

    fn kubelet_settings(&self) -> String {
        format!(
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n\
             containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n\
             cgroupDriver: cgroupfs\ncgroupRoot: /{}\nfailCgroupV1: false\nfailSwapOn: false\n\
             authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}\n\
             authorization: {{mode: AlwaysAllow}}\nenforceNodeAllocatable: []\n\
             resolvConf: \"\"\nmakeIPTablesUtilChains: false\n\
             evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, \
             imagefs.available: 1%}}\nimageGCHighThresholdPercent: 100\n\
             volumeStatsAggPeriod: 5s\n",
            self.groups
        )
    }
}

const NETWORK: &str = r#"{
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [{
        "type": "bridge",
        "bridge": "pods",
        "isGateway": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{ "subnet": "10.88.0.0/16" }]],
            "routes": [{ "dst": "0.0.0.0/0" }]
        }
    }]
}
"#;

/// Starts a program whose log has its name.
pub(crate) fn start(program: &str, words: &[String]) -> Result<Background> {
    let log = Path::new(LOGS).join(format!("{program}.log"));
    let log = File::options().create(true).append(true).open(&log);
    let log = log.with_context(|| format!("cannot open the log of {program}"))?;
    Background::start(Tool::new(program).args(words).output_to(log)?)
}
