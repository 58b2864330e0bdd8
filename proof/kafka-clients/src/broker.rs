//! The broker that clients use: one for each suite, initially empty.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use system::{Ability, Tool, ask_broker, check_for_panics, free_address, missing, product_path};
use tempfile::TempDir;

use crate::java::{JAVA_FLAGS, jars};

/// Variable that selects Apache Kafka instead.
const REFERENCE_VARIABLE: &str = "MEMLANE_KAFKA_REFERENCE";

const PROGRAM: &str = "memlane-broker";
const POOL_SIZE: &str = "512MiB";

/// Equivalent to the settings of Apache Kafka below.
const PRODUCT_OPTIONS: &[&str] = &["--group-initial-rebalance-delay", "0"];

/// Socket in the broker's folder.
const HTTP_SOCKET: &str = "http.sock";

const WITHOUT_LOGIN: &[&str] = &["--anonymous", "loopback"];

const NO_LISTS: &str = "version = 1\n";

/// Access lists that permit what Apache Kafka permits without any.
const EVERYBODY: &str = r#"version = 1
[[acl]]
principal = "User:*"
permission = "Allow"
operation = "All"
resource = "Topic"
name = "*"
[[acl]]
principal = "User:*"
permission = "Allow"
operation = "All"
resource = "Group"
name = "*"
[[acl]]
principal = "User:*"
permission = "Allow"
operation = "All"
resource = "TransactionalId"
name = "*"
[[acl]]
principal = "User:*"
permission = "Allow"
operation = "All"
resource = "Cluster"
name = "kafka-cluster"
"#;

const START_TIME_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of lines of a broker's log shown after a failure of a client.
const LOG_LINES_SHOWN: usize = 20;

/// Script that ends a program, and removes its folder, when the process that started it has ended:
/// a suite shares one broker in a static, which is never dropped.
const KEEPER: &str = r#"folder=$1; shift
"$@" >"$folder/log" 2>&1 </dev/null &
program=$!
echo "$program" >"$folder/id"
read -r line
kill -KILL "$program"
wait "$program" 2>/dev/null
rm -rf "$folder""#;

/// Settings of an Apache Kafka cluster of one node, with short delays.
const REFERENCE_SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
group.initial.rebalance.delay.ms=0
group.consumer.heartbeat.interval.ms=500
group.consumer.min.heartbeat.interval.ms=500
";

/// Returns whether a test cannot run because of missing programs, and reports the skip.
pub fn is_skipped(programs: &[&'static str]) -> bool {
    let needed: Vec<_> = programs.iter().map(|program| Ability::Program(program)).collect();
    let reason = missing(&needed);
    if let Some(reason) = &reason {
        eprintln!("skipped: {reason}");
    }
    reason.is_some()
}

/// A broker on a free port of the loopback device.
pub struct Broker {
    folder: PathBuf,
    address: SocketAddr,
    /// The broker ends with it.
    _keeper: Child,
}

impl Broker {
    /// Returns the broker of this suite, started by the first test that uses it.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Broker>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    /// Address as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn socket_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether this is Apache Kafka.
    pub fn is_reference() -> bool {
        std::env::var_os(REFERENCE_VARIABLE).is_some_and(|it| !it.is_empty())
    }

    /// Returns whether the broker has received a request of this kind, according to its metrics.
    /// Apache Kafka does not have them.
    pub fn has_seen(&self, request: &str) -> Result<bool> {
        self.shows(&format!("memlane_broker_requests_total{{request=\"{request}\"}}"))
    }

    /// Returns whether the broker's metrics contain this text.
    pub fn shows(&self, part: &str) -> Result<bool> {
        Ok(ask_broker(&self.folder.join(HTTP_SOCKET), "/metrics")?.contains(part))
    }

    /// Checks that clients began transactions with their first records, without a separate request
    /// (KIP-890).
    pub fn check_transactions_begin_with_records(&self) -> Result<()> {
        if Self::is_reference() {
            return Ok(());
        }
        ensure!(self.has_seen("EndTxn")?, "no transaction has ended");
        for request in ["AddPartitionsToTxn", "AddOffsetsToTxn"] {
            ensure!(!self.has_seen(request)?, "a client sent {request}");
        }
        Ok(())
    }

    /// Returns the process id of the broker itself.
    pub fn process_id(&self) -> Result<u32> {
        let text = fs::read_to_string(self.folder.join("id")).context("cannot read the id")?;
        text.trim().parse().with_context(|| format!("{text:?} is no process id"))
    }

    /// Runs a client, which must succeed, and returns its output. The broker must not have panicked
    /// meanwhile.
    pub fn check(&self, client: Tool) -> Result<String> {
        let printed = client.check().with_context(|| self.last_words())?;
        check_for_panics(&self.folder.join("log"))?;
        Ok(printed)
    }

    /// Returns the end of the broker's log, for the error of a failed client.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        format!("the broker's log ends with:\n{}", shown.join("\n"))
    }

    fn start() -> Result<Self> {
        if Self::is_reference() {
            Self::reference()
        } else {
            let folder = new_folder()?;
            start_product(folder, POOL_SIZE, &[WITHOUT_LOGIN, PRODUCT_OPTIONS].concat())
        }
    }

    /// Starts an empty Apache Kafka cluster of one node.
    pub fn reference() -> Result<Self> {
        start_reference(new_folder()?)
    }

    /// Starts a separate `memlane-broker` with these options for access control.
    pub fn with_access(options: &[&str]) -> Result<Self> {
        start_product(new_folder()?, POOL_SIZE, &[options, PRODUCT_OPTIONS].concat())
    }

    /// Starts a separate broker that permits everything to everybody until access lists change it,
    /// with these additional options.
    pub(crate) fn of_everybody(pool_size: &str, options: &[&str]) -> Result<Self> {
        Self::with_lists(pool_size, EVERYBODY, options)
    }

    /// Starts a separate broker without access lists, where everybody is a super user.
    pub(crate) fn of_super_user(pool_size: &str, options: &[&str]) -> Result<Self> {
        Self::with_lists(
            pool_size,
            NO_LISTS,
            &[&["--super-user", "User:ANONYMOUS"], options].concat(),
        )
    }

    fn with_lists(pool_size: &str, lists: &str, options: &[&str]) -> Result<Self> {
        let folder = new_folder()?;
        let path = folder.path().join("access");
        fs::write(&path, lists).context("cannot write access lists")?;
        let path = path.to_str().context("the path of the folder is no UTF-8")?.to_owned();
        let access = [WITHOUT_LOGIN, &["--acl-file", &path], options].concat();
        start_product(folder, pool_size, &access)
    }

    /// Starts `command`, which must serve `address`, and waits until it does.
    fn kept(folder: TempDir, command: &[String], address: SocketAddr) -> Result<Self> {
        let folder = folder.keep();
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&folder)
            .args(command)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot run sh")?;
        let broker = Self { folder, address, _keeper: keeper };
        let deadline = Instant::now() + START_TIME_LIMIT;
        while TcpStream::connect(address).is_err() {
            let has_ended = broker.process_id().is_ok_and(|id| !is_running(id));
            if has_ended || Instant::now() >= deadline {
                bail!("the broker does not serve {address}; {}", broker.last_words());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(broker)
    }
}

fn new_folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("memlane-kafka-").tempdir();
    made.context("cannot make a folder for the broker")
}

fn start_product(folder: TempDir, pool_size: &str, options: &[&str]) -> Result<Broker> {
    let address = free_address()?;
    let program = product_path(PROGRAM);
    ensure!(program.exists(), "{} is not built", program.display());
    let program = program.to_str().context("the path of the broker is no UTF-8")?;
    let listen = address.to_string();
    let http_socket = folder.path().join(HTTP_SOCKET);
    let http_socket = http_socket.to_str().context("the path of the folder is no UTF-8")?;
    let mut command = vec![program, "--embedded", pool_size, "--listen", &listen];
    command.extend(["--http-socket", http_socket]);
    command.extend(options);
    let command: Vec<_> = command.into_iter().map(str::to_owned).collect();
    Broker::kept(folder, &command, address)
}

fn start_reference(folder: TempDir) -> Result<Broker> {
    let (address, controller) = (free_address()?, free_address()?);
    let settings_path = folder.path().join("settings");
    let settings = format!(
        "{REFERENCE_SETTINGS}listeners=PLAINTEXT://{address},CONTROLLER://{controller}\n\
         advertised.listeners=PLAINTEXT://{address}\ncontroller.quorum.voters=1@{controller}\n\
         log.dirs={}\n",
        folder.path().join("logs").display()
    );
    fs::write(&settings_path, settings).context("cannot write the settings of Apache Kafka")?;
    let settings = settings_path.to_str().context("the path of the settings is no UTF-8")?;
    let jars = jars()?;
    let java = |words: &[&str]| -> Vec<String> {
        let flags = JAVA_FLAGS.iter().copied().chain(["-cp", &jars]);
        std::iter::once("java")
            .chain(flags)
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    let format = java(&[
        "kafka.tools.StorageTool",
        "format",
        "-t",
        "bWVtbGFuZS10ZXN0cy0xMQ",
        "-c",
        settings,
    ]);
    Tool::new("env").args(&format).check()?;
    Broker::kept(folder, &java(&["kafka.Kafka", settings]), address)
}

/// Returns whether the process exists and has not ended. Its command line is no indication: a
/// process in the middle of an exec has none.
fn is_running(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"));
    let state = stat.ok().and_then(|it| it.rsplit_once(')')?.1.trim_start().chars().next());
    state.is_some_and(|it| !"ZX".contains(it))
}
