//! A daemon, its console, and the actions that scenarios request.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use guest::{FROM_SCRIPT_KERNEL_ARGS, ImageContents, MachinesHost};
use rustix::process::Signal;
use system::{
    Ability, Background, Broker, Daemon, NbdClient, Request, Tool, check_for_panics, free_address,
    missing, processor_seconds, product,
};
use tempfile::TempDir;

use crate::packages::page;
use crate::scenario;

const POOL_SIZE: &str = "512MiB";
const ADMINISTRATOR: &str = "admin";
const PASSWORD: &str = "four words are a password";

/// File in the console's state folder, until the first administrator is created.
const SETUP_LINK: &str = "setup-link";

const START_TIME_LIMIT: Duration = Duration::from_secs(60);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const WRITE_BYTES: usize = 1 << 20;
const IO_BYTES: u32 = 4096;

/// A separate daemon and console, in fresh folders.
pub struct Fixture {
    inside: Mutex<Inside>,
    origin: String,
    address: SocketAddr,
    code: String,
}

struct Inside {
    // Machines end before the daemon of their volumes.
    machines: Option<MachinesHost>,
    daemon: Daemon,
    topics: Option<Topics>,
    console: Option<Background>,
    folder: TempDir,
    /// Served instead of the page inside the console.
    page: Option<PathBuf>,
    io: Option<Io>,
    /// A member of a consumer group.
    consumer: Option<Background>,
}

/// A broker with its topics on volumes of the daemon.
struct Topics {
    broker: Broker,
    http: SocketAddr,
    sql: SocketAddr,
}

/// A client that reads and writes until it is stopped.
struct Io {
    is_over: Arc<AtomicBool>,
    client: JoinHandle<Result<()>>,
}

impl Fixture {
    /// Returns a shared fixture with an administrator, for concurrent tests that restore its state.
    /// It ends with the last of them, because a value that is never dropped would leave its
    /// programs running.
    pub fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Fixture>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fixture) = shared.upgrade() {
            return Ok(fixture);
        }
        let fixture = Arc::new(Self::with_administrator()?);
        *shared = Arc::downgrade(&fixture);
        Ok(fixture)
    }

    /// Starts a fixture whose first administrator is created through the link.
    pub fn with_administrator() -> Result<Self> {
        let fixture = Self::start()?;
        fixture.run("first_start")?;
        Ok(fixture)
    }

    /// Starts a fixture with a broker, which the console knows.
    pub fn with_broker() -> Result<Self> {
        let fixture = Self::start_with(Some(page()?), Behind::DaemonAndBroker)?;
        fixture.run("first_start")?;
        Ok(fixture)
    }

    /// Starts a fixture with libvirt and `memlane-machines`, which the console knows.
    ///
    /// # Errors
    /// If one of them does not start.
    pub fn with_machines() -> Result<Self> {
        let fixture = Self::start_with(Some(page()?), Behind::DaemonAndMachines)?;
        fixture.with(|inside| MachinesHost::volume_with_text(&inside.daemon, "golden", SCRIPT))?;
        fixture.run("first_start")?;
        Ok(fixture)
    }

    /// Starts a fixture with a broker and machines.
    ///
    /// # Errors
    /// If one of them does not start.
    pub fn with_everything() -> Result<Self> {
        let fixture = Self::start_with(Some(page()?), Behind::All)?;
        fixture.with(|inside| MachinesHost::volume_with_text(&inside.daemon, "golden", SCRIPT))?;
        fixture.run("first_start")?;
        Ok(fixture)
    }

    /// Starts a fixture without any administrator. It serves the most recently built page.
    pub fn start() -> Result<Self> {
        Self::start_with(Some(page()?), Behind::Daemon)
    }

    /// Starts a fixture that serves the page inside the console.
    pub fn with_own_page() -> Result<Self> {
        Self::start_with(None, Behind::Daemon)
    }

    fn start_with(page: Option<PathBuf>, behind: Behind) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-console-").tempdir();
        let folder = folder.context("cannot make a folder for the console")?;
        let store = folder.path().join("images");
        let flags = format!("--images-store {}", store.display());
        let mut daemon = Daemon::prepare(POOL_SIZE.to_owned(), flags)?;
        daemon.start_again()?;
        let topics = match behind {
            Behind::DaemonAndBroker | Behind::All => Some(Topics::on(&daemon)?),
            Behind::Daemon | Behind::DaemonAndMachines => None,
        };
        let machines = match behind {
            Behind::DaemonAndMachines | Behind::All => Some(MachinesHost::start(GUEST, &daemon)?),
            Behind::Daemon | Behind::DaemonAndBroker => None,
        };
        let address = free_address()?;
        let inside = Inside {
            machines,
            daemon,
            topics,
            console: None,
            folder,
            page,
            io: None,
            consumer: None,
        };
        let mut fixture = Self {
            inside: Mutex::new(inside),
            origin: format!("https://{address}"),
            address,
            code: String::new(),
        };
        fixture.with(|inside| inside.start_console(address))?;
        fixture.code = fixture.with(|inside| inside.setup_code())?;
        Ok(fixture)
    }

    /// Fetches a file of the page from the console.
    pub fn page_file(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.with(|inside| inside.folder.path().join("page-file"));
        let certificate = self.with(|inside| inside.state_dir().join("certificate.pem"));
        let curl =
            Tool::new("curl -sS --fail --cacert").arg(certificate).arg("--output").arg(&file);
        curl.arg(format!("{}/{name}", self.origin)).check()?;
        fs::read(&file).with_context(|| format!("nothing was served as {name}"))
    }

    /// Runs a scenario of `browser/`.
    pub fn run(&self, name: &str) -> Result<()> {
        self.run_in(name, &[])
    }

    /// Takes a screenshot of each page.
    pub fn take_pictures(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = fs::canonicalize(folder).context("the folder was just made")?;
        self.run_in("pictures", &[("MEMLANE_PICTURES", folder.display().to_string())])
    }

    fn run_in(&self, name: &str, more: &[(&str, String)]) -> Result<()> {
        let mut environment = vec![
            ("MEMLANE_CONSOLE", self.origin.clone()),
            ("MEMLANE_CONSOLE_CODE", self.code.clone()),
            ("MEMLANE_CONSOLE_USER", ADMINISTRATOR.to_owned()),
            ("MEMLANE_CONSOLE_PASSWORD", PASSWORD.to_owned()),
            ("MEMLANE_GUEST_KERNEL_ARGS", FROM_SCRIPT_KERNEL_ARGS.to_owned()),
        ];
        environment.extend(more.iter().cloned());
        let done = scenario::run(name, &environment, |words| {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            self.with(|inside| inside.answer(&words, self.address))
        });
        done.with_context(|| self.with(|inside| inside.last_words()))
    }

    fn with<T>(&self, what: impl FnOnce(&mut Inside) -> T) -> T {
        what(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Services that the console knows.
enum Behind {
    Daemon,
    DaemonAndBroker,
    DaemonAndMachines,
    All,
}

/// Contents of guests: they run a script from their disk and react to the power button.
const GUEST: ImageContents =
    ImageContents { products: &[], programs: &[], modules: &["button", "evdev"] };

/// Script of a guest on the volume `golden`, which prints its input.
const SCRIPT: &str = r#"
echo READY >/dev/console
while read -r line; do
    echo "HEARD-$line" >/dev/console
done </dev/ttyS0
"#;

impl Topics {
    fn on(daemon: &Daemon) -> Result<Self> {
        let (http, sql) = (free_address()?, free_address()?);
        let flags = format!("--http {http} --sql {sql}");
        Ok(Self { broker: Broker::on_daemon(&daemon.run_dir(), &flags)?, http, sql })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let checked = check_for_panics(&self.log_path());
        assert!(checked.is_ok() || thread::panicking(), "the console panicked: {checked:?}");
    }
}

impl Inside {
    fn answer(&mut self, words: &[&str], address: SocketAddr) -> Result<String> {
        match words {
            ["memlane", words @ ..] => self.memlane(words),
            ["write", volume, bytes, seed] => self.write(volume, bytes.parse()?, seed.parse()?),
            ["check", volume, bytes, seed] => self.check(volume, bytes.parse()?, seed.parse()?),
            ["begin-io", volume] => self.begin_io(volume, Duration::ZERO),
            ["begin-io", volume, pause_ms] => {
                self.begin_io(volume, Duration::from_millis(pause_ms.parse()?))
            }
            ["end-io"] => self.end_io(),
            ["may-attach"] => Ok(self.may_attach()),
            ["console-cpu"] => Ok(processor_seconds(self.console_id()?)?.to_string()),
            ["console-memory"] => self.console_memory(),
            ["begin-consumer", topic, group] => self.begin_consumer(topic, group),
            ["end-consumer"] => self.end_consumer(),
            ["kill-daemon"] => self.daemon.kill().map(|()| "killed".to_owned()),
            ["start-daemon"] => self.daemon.start_again().map(|_| "started".to_owned()),
            ["kill-broker"] => self.broker()?.kill().map(|()| "killed".to_owned()),
            ["start-broker"] => self.broker()?.start_again().map(|_| "started".to_owned()),
            ["kill-console"] => self.kill_console(),
            ["start-console"] => self.start_console(address).map(|()| "started".to_owned()),
            _ => bail!("nobody knows how to do {words:?}"),
        }
    }

    fn memlane(&self, words: &[&str]) -> Result<String> {
        self.tool(words).arg("--socket").arg(self.daemon.api_socket()).check()
    }

    /// Creates a command of `memlane`, which knows the addresses of all programs.
    fn tool(&self, words: &[&str]) -> Tool {
        let mut tool = product("memlane").args(words);
        if let Some(topics) = &self.topics {
            tool = tool.env("MEMLANE_BROKER", &topics.broker.address());
            tool = tool.env("MEMLANE_SQL", &topics.sql.to_string());
        }
        if let Some(machines) = &self.machines {
            tool = tool.env("MEMLANE_MACHINES_SOCKET", &machines.socket().to_string_lossy());
        }
        tool
    }

    fn begin_consumer(&mut self, topic: &str, group: &str) -> Result<String> {
        ensure!(self.consumer.is_none(), "a consumer reads already");
        let unread = File::options().write(true).open("/dev/null").context("cannot open null")?;
        let tool = self.tool(&["consume", topic, "--group", group, "--follow"]);
        self.consumer = Some(Background::start(tool.output_to(unread)?)?);
        Ok("begun".to_owned())
    }

    fn end_consumer(&mut self) -> Result<String> {
        let mut consumer = self.consumer.take().context("no consumer reads")?;
        consumer.end(Signal::INT, STOP_TIME_LIMIT)?;
        Ok("ended".to_owned())
    }

    fn broker(&mut self) -> Result<&mut Broker> {
        Ok(&mut self.topics.as_mut().context("there is no broker")?.broker)
    }

    fn write(&self, volume: &str, bytes: usize, seed: u64) -> Result<String> {
        let mut client = self.client(volume)?;
        for (number, data) in contents(bytes, seed).chunks(WRITE_BYTES).enumerate() {
            let offset = (number * WRITE_BYTES) as u64;
            client.ask(&Request::Write { offset, data: data.to_vec() })?;
        }
        client.ask(&Request::Flush)?;
        Ok("written".to_owned())
    }

    fn check(&self, volume: &str, bytes: usize, seed: u64) -> Result<String> {
        let mut client = self.client(volume)?;
        for (number, expected) in contents(bytes, seed).chunks(WRITE_BYTES).enumerate() {
            let offset = (number * WRITE_BYTES) as u64;
            let length = u32::try_from(expected.len())?;
            if client.ask(&Request::Read { offset, length })? != expected {
                return Ok(format!("different at {offset}"));
            }
        }
        Ok("same".to_owned())
    }

    fn client(&self, volume: &str) -> Result<NbdClient> {
        Ok(NbdClient::connect(&self.daemon.nbd_socket(), volume)?)
    }

    /// Repeatedly writes and reads, with a pause between.
    fn begin_io(&mut self, volume: &str, pause: Duration) -> Result<String> {
        ensure!(self.io.is_none(), "a client reads and writes already");
        let mut client = self.client(volume)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let client = thread::spawn(move || {
            let block_count = client.size_bytes() / u64::from(IO_BYTES);
            // Relaxed: nothing but the wish to end is told.
            for number in 0_u64.. {
                if told.load(Ordering::Relaxed) {
                    break;
                }
                let offset = (number % block_count) * u64::from(IO_BYTES);
                let data = number.to_le_bytes().repeat(IO_BYTES as usize / 8);
                client.ask(&Request::Write { offset, data })?;
                client.ask(&Request::Read { offset, length: IO_BYTES })?;
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
            Ok(())
        });
        self.io = Some(Io { is_over, client });
        Ok("begun".to_owned())
    }

    fn end_io(&mut self) -> Result<String> {
        let io = self.io.take().context("no client reads and writes")?;
        io.is_over.store(true, Ordering::Relaxed);
        io.client.join().map_err(|_| anyhow!("the client panicked"))??;
        Ok("ended".to_owned())
    }

    fn may_attach(&self) -> String {
        match missing(&[Ability::BlockDevices]) {
            None => "yes".to_owned(),
            Some(reason) => {
                eprintln!("  nothing is attached: {reason}");
                "no".to_owned()
            }
        }
    }

    fn console_id(&self) -> Result<u32> {
        Ok(self.console.as_ref().context("the console does not run")?.id())
    }

    /// Returns the resident memory of the console, in total and without files.
    fn console_memory(&self) -> Result<String> {
        let path = format!("/proc/{}/status", self.console_id()?);
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let kib_of = |name: &str| {
            let line = status.lines().find_map(|it| it.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        let all = kib_of("VmRSS:").with_context(|| format!("no VmRSS in {path}"))?;
        let own = kib_of("RssAnon:").with_context(|| format!("no RssAnon in {path}"))?;
        Ok(format!("{:.1} MiB ({:.1} of its own)", all / 1024.0, own / 1024.0))
    }

    fn start_console(&mut self, address: SocketAddr) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.context("cannot open the console's log")?;
        let console = product("memlane-console")
            .arg("--daemon-socket")
            .arg(self.daemon.api_socket())
            .arg("--state-dir")
            .arg(self.state_dir())
            .args(["--listen", &address.to_string()]);
        let console = match &self.topics {
            Some(Topics { broker, http, sql }) => {
                let console = console.args(["--broker", &http.to_string()]);
                let console = console.args(["--broker-sql", &sql.to_string()]);
                console.args(["--broker-kafka", &broker.address()])
            }
            None => console,
        };
        let console = match &self.machines {
            Some(machines) => console.arg("--machines-socket").arg(machines.socket()),
            None => console,
        };
        let console = match &self.page {
            Some(page) => console.arg("--page").arg(page),
            None => console,
        };
        let console = console.own_group().output_to(log)?;
        self.console = Some(Background::start(console)?);
        let deadline = Instant::now() + START_TIME_LIMIT;
        while TcpStream::connect(address).is_err() {
            let console = self.console.as_mut().context("the console was just started")?;
            let ended = console.has_ended()?;
            ensure!(ended.is_none(), "the console ended; {}", self.last_words());
            ensure!(Instant::now() < deadline, "nobody serves {address}; {}", self.last_words());
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn kill_console(&mut self) -> Result<String> {
        // Dropping it kills it and waits for its end.
        drop(self.console.take().context("the console does not run")?);
        Ok("killed".to_owned())
    }

    /// Returns the one-time code at the end of the link for the first administrator. A console
    /// accepts connections before it has written the link.
    fn setup_code(&self) -> Result<String> {
        let path = self.state_dir().join(SETUP_LINK);
        let deadline = Instant::now() + START_TIME_LIMIT;
        while !path.exists() {
            ensure!(Instant::now() < deadline, "no {}; {}", path.display(), self.last_words());
            thread::sleep(POLL_INTERVAL);
        }
        let link = fs::read_to_string(&path).context("cannot read the link")?;
        let code = link.trim_end().rsplit('/').next().filter(|it| !it.is_empty());
        Ok(code.with_context(|| format!("there is no code in {link:?}"))?.to_owned())
    }

    fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let machines = self.machines.as_ref().map(MachinesHost::log).unwrap_or_default();
        format!("the console's log:\n{log}\nthe daemon's:\n{}\n{machines}", self.daemon.log_end())
    }
}

/// Returns bytes that do not repeat and cannot be compressed.
fn contents(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut words = Vec::with_capacity(bytes);
    while words.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend(state.to_le_bytes());
    }
    words
}
