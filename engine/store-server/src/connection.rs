//! HTTP connections to a server, with bounded retries of requests.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use image::{ImageError, ImageErrorKind};
use reqwest::{Client, Method, Response, Url};
use tls::{TlsClientFiles, TlsError, load_client};
use tokio::runtime::{Builder, Runtime};

use crate::trouble::Trouble;
use crate::wire::{ERROR_HEADER, PREFIX, VERSION, VERSION_HEADER, WireError, transfer_seconds_max};

/// Number of threads for requests. They mostly wait for the network.
const THREAD_COUNT: usize = 2;

/// Time after which idle connections are closed, before the server does so.
const IDLE_TIME_MAX: Duration = Duration::from_secs(240);

/// Maximum number of idle connections.
const IDLE_COUNT_MAX: usize = 8;

/// Pause before the first retry. Each further pause is twice as long, up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Maximum length of an error's text.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Scheme of the address of a store.
const SCHEME: &str = "memlane://";

/// Timeouts and retries of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub connect: Duration,
    /// Maximum time of one attempt, in addition to the time to transfer its bytes.
    pub attempt: Duration,
    /// Maximum number of attempts.
    pub attempts_max: u32,
    /// Time after which no further attempt begins.
    pub total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            attempt: Duration::from_secs(30),
            attempts_max: 6,
            total: Duration::from_secs(30),
        }
    }
}

/// Address of a served store, and the certificates for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    /// `memlane://HOST:PORT`.
    pub place: String,
    pub tls: TlsClientFiles,
}

/// A server with the threads and connections for requests to it.
#[derive(Debug)]
pub(crate) struct Connection {
    address: StoreAddress,
    base: Url,
    patience: Patience,
    http: Mutex<Http>,
    /// `None` only during drop.
    runtimes: Option<Runtimes>,
}

/// Threads that run requests.
#[derive(Debug)]
struct Runtimes {
    shared: Runtime,
    /// Runs requests on the thread that waits for them, which saves waking another thread for each
    /// step. It runs only while a caller waits.
    own_thread: Runtime,
}

/// HTTP clients, and the contents of the certificate files with which they were created. A
/// connection is driven by the runtime that opened it, so each runtime has its own client.
#[derive(Clone, Debug)]
struct Http {
    shared: Client,
    own_thread: Client,
    files: Vec<Vec<u8>>,
}

/// Choice of the threads that run a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOn {
    SharedThreads,
    /// For one short request at a time, whose duration matters.
    OwnThread,
}

/// Request to a server.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) method: Method,
    /// Path and query below the prefix.
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// Maximum length of the answer.
    pub(crate) answer_bytes_max: usize,
}

impl StoreAddress {
    /// Returns whether a place is an address of a served store.
    pub fn is_one(place: &str) -> bool {
        place.starts_with(SCHEME)
    }

    /// Fails with `Invalid` if the place is no address.
    pub fn check(&self) -> Result<(), ImageError> {
        self.base().map(drop)
    }

    fn base(&self) -> Result<Url, ImageError> {
        let invalid = || {
            let attempt = format!("open the images in {}", self.place);
            let why = "a served store is named memlane://HOST:PORT";
            ImageError::new(ImageErrorKind::Invalid, attempt).with_source(why)
        };
        let authority = self.place.strip_prefix(SCHEME).ok_or_else(invalid)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(invalid)?;
        let is_plain = !host.is_empty() && !authority.contains(['/', '?', '#', '@', '\\']);
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_plain || !is_port {
            return Err(invalid());
        }
        Url::parse(&format!("https://{authority}{PREFIX}")).map_err(|_| invalid())
    }
}

impl Connection {
    pub(crate) fn new(address: StoreAddress, patience: Patience) -> Result<Self, ImageError> {
        let base = address.base()?;
        let attempt = || format!("open the images in {}", address.place);
        let http = Http::load(&address.tls, patience).map_err(|error| {
            ImageError::new(ImageErrorKind::Denied, attempt()).with_source(error)
        })?;
        let runtimes = Runtimes::new().map_err(|error| {
            ImageError::new(ImageErrorKind::Unavailable, attempt()).with_source(error)
        })?;
        let http = Mutex::new(http);
        Ok(Self { address, base, patience, http, runtimes: Some(runtimes) })
    }

    /// Returns the runtime of requests on shared threads.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtimes().shared
    }

    fn runtimes(&self) -> &Runtimes {
        self.runtimes.as_ref().expect("only dropping takes them")
    }

    /// Sends a request and waits for its answer, blocking the caller.
    pub(crate) fn ask(
        &self,
        asking: Asking,
        attempt: impl FnOnce() -> String,
    ) -> Result<Bytes, ImageError> {
        self.ask_on(RunOn::SharedThreads, asking, attempt)
    }

    /// Same, with a choice of threads.
    pub(crate) fn ask_on(
        &self,
        run_on: RunOn,
        asking: Asking,
        attempt: impl FnOnce() -> String,
    ) -> Result<Bytes, ImageError> {
        let runtime = match run_on {
            RunOn::SharedThreads => &self.runtimes().shared,
            RunOn::OwnThread => &self.runtimes().own_thread,
        };
        let answered = runtime.block_on(self.ask_repeatedly(run_on, asking));
        answered.map_err(|trouble| self.error(trouble, attempt()))
    }

    pub(crate) fn error(&self, trouble: Trouble, attempt: String) -> ImageError {
        trouble.into_error(attempt, &self.address.place)
    }

    /// Sends a request, and retries it within the limits. All requests are idempotent.
    pub(crate) async fn ask_repeatedly(
        &self,
        run_on: RunOn,
        asking: Asking,
    ) -> Result<Bytes, Trouble> {
        let (begun, mut pause) = (Instant::now(), PAUSE_MIN);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let client = match run_on {
                RunOn::SharedThreads => self.lock().shared.clone(),
                RunOn::OwnThread => self.lock().own_thread.clone(),
            };
            let trouble = match self.ask_once(&client, &asking).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let is_renewed = match &trouble {
                Trouble::Certificates(_) => self.reload(),
                _ => false,
            };
            let is_over = attempts >= self.patience.attempts_max
                || begun.elapsed() + pause > self.patience.total;
            if is_over || !(trouble.may_pass() || is_renewed) {
                return Err(trouble);
            }
            tracing::debug!(?trouble, path = asking.path, "asking the image store again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn ask_once(&self, client: &Client, asking: &Asking) -> Result<Bytes, Trouble> {
        let url = format!("{}{}", self.base, asking.path);
        let bytes = asking.body.len().max(asking.answer_bytes_max) as u64;
        let time_max = self.patience.attempt + Duration::from_secs(transfer_seconds_max(bytes));
        let request = client.request(asking.method.clone(), url).timeout(time_max);
        let response = request.body(asking.body.clone()).send().await;
        let response = response.map_err(|error| Trouble::of(&error))?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        if header(VERSION_HEADER) != Some(VERSION) {
            let status = response.status().as_u16();
            let why = format!(
                "it is not the image store of a memlaned of this version (HTTP status {status})"
            );
            return Err(Trouble::Foreign(why));
        }
        if response.status().is_success() {
            return read(response, asking.answer_bytes_max).await;
        }
        let kind = header(ERROR_HEADER).and_then(WireError::named);
        let kind = kind.unwrap_or(WireError::Image(ImageErrorKind::Unavailable));
        let text = read(response, TEXT_BYTES_MAX).await.unwrap_or_default();
        Err(Trouble::Refused { kind, why: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Reads the certificates again after a failure. Returns whether they have changed.
    fn reload(&self) -> bool {
        let before = self.lock().files.clone();
        match Http::load(&self.address.tls, self.patience) {
            Ok(fresh) if fresh.files != before => {
                *self.lock() = fresh;
                true
            }
            _ => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Http> {
        self.http.lock().expect("no thread panics with this lock")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(runtimes) = self.runtimes.take() {
            // Does not block, which would panic in an asynchronous context.
            runtimes.shared.shutdown_background();
            runtimes.own_thread.shutdown_background();
        }
    }
}

impl Runtimes {
    fn new() -> io::Result<Self> {
        let shared = Builder::new_multi_thread()
            .worker_threads(THREAD_COUNT)
            .thread_name("store-client")
            .enable_all()
            .build()?;
        let own_thread = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { shared, own_thread })
    }
}

impl Http {
    fn load(tls: &TlsClientFiles, patience: Patience) -> Result<Self, TlsError> {
        let config = load_client(tls)?;
        let files = [&tls.certificate, &tls.key, &tls.authorities];
        // Used only for comparison, so a file that cannot be read counts as empty.
        let files = files.map(|path| std::fs::read(path).unwrap_or_default()).to_vec();
        let client = || {
            Client::builder()
                .tls_backend_preconfigured(config.clone())
                .http1_only()
                .https_only(true)
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(patience.connect)
                .tcp_nodelay(true)
                .pool_idle_timeout(IDLE_TIME_MAX)
                .pool_max_idle_per_host(IDLE_COUNT_MAX)
                .build()
                .expect("the settings are complete")
        };
        Ok(Self { shared: client(), own_thread: client(), files })
    }
}

/// Reads the body of an answer up to a limit.
async fn read(mut response: Response, bytes_max: usize) -> Result<Bytes, Trouble> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| Trouble::of(&error))? {
        if body.len() + piece.len() > bytes_max {
            return Err(Trouble::Foreign(format!("its answer is longer than {bytes_max} bytes")));
        }
        if body.capacity() == 0 {
            let told = response.content_length().and_then(|it| usize::try_from(it).ok());
            body.reserve_exact(told.unwrap_or(piece.len()).clamp(piece.len(), bytes_max));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(place: &str) -> Option<String> {
        let files =
            TlsClientFiles { certificate: "c".into(), key: "k".into(), authorities: "a".into() };
        let address = StoreAddress { place: place.to_owned(), tls: files };
        address.base().ok().map(String::from)
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let is = |place, expected: &str| assert_eq!(base(place).as_deref(), Some(expected));
        is("memlane://b.example:10810", "https://b.example:10810/v1/");
        is("memlane://[::1]:10810/", "https://[::1]:10810/v1/");
        for place in [
            "memlane://",
            "memlane://b",
            "memlane://:1",
            "memlane://b:0",
            "memlane://b:x",
            "memlane://b:1/path",
            "memlane://user@b:1",
            "https://b:1",
        ] {
            assert_eq!(base(place), None, "{place}");
        }
    }
}
