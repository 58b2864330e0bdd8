//! A minimal S3 server for tests, on its own port. It stores objects in memory, returns listings in
//! short pages, and can inject faults.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use tokio::runtime::Runtime;

/// Maximum number of objects per listing page, small so that listings need several pages.
const LISTED_MAX: usize = 3;

const BUCKET: &str = "/bucket/";

/// Polling interval of a held request.
const HELD_INTERVAL: Duration = Duration::from_millis(1);

/// Contents of the bucket, and the faults to inject.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) objects: BTreeMap<String, Bytes>,
    uploads: HashMap<String, BTreeMap<u32, Bytes>>,
    upload_count: u32,
    /// Length of the longest uploaded part.
    pub(crate) part_bytes_max: usize,
    /// Number of requests that fail with a server error before one succeeds.
    pub(crate) failing: u32,
    /// Number of puts that succeed but lose their response.
    pub(crate) answers_lost: u32,
    /// Number of manifest puts that succeed but return a server error.
    pub(crate) failing_manifests: u32,
    /// Reads of single objects fail with a server error.
    pub(crate) are_reads_failing: bool,
    /// Reads of missing objects are denied, as if the client might not list the whole bucket.
    pub(crate) are_missing_denied: bool,
    /// Puts overwrite objects regardless of conditions.
    pub(crate) ignores_conditions: bool,
    /// Reads of these objects do not return while they are listed.
    pub(crate) held: Vec<String>,
}

impl Bucket {
    pub(crate) fn uploads_under_way(&self) -> usize {
        self.uploads.len()
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    bucket: Arc<Mutex<Bucket>>,
    /// `None` when stopped.
    runtime: Option<Runtime>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut server = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            bucket: Arc::new(Mutex::new(Bucket::default())),
            runtime: None,
        };
        server.start_again();
        server
    }

    /// Closes all connections, and accepts no more until it is restarted.
    pub(crate) fn stop(&mut self) {
        drop(self.runtime.take());
    }

    /// Restarts at the same address with the same objects.
    pub(crate) fn start_again(&mut self) {
        let runtime = Runtime::new().expect("threads can be had");
        let listener = runtime.block_on(tokio::net::TcpListener::bind(self.address));
        let listener = listener.expect("the port is free");
        self.address = listener.local_addr().expect("it is bound");
        let app = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&self.bucket));
        runtime.spawn(async move { axum::serve(listener, app).await });
        self.runtime = Some(runtime);
    }

    pub(crate) fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().expect("no request panics")
    }
}

type Answer = Response<Body>;

async fn answer(
    State(bucket): State<Arc<Mutex<Bucket>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    while method == Method::GET && is_held(&bucket, &uri) {
        tokio::time::sleep(HELD_INTERVAL).await;
    }
    let mut bucket = bucket.lock().expect("no request panics");
    if bucket.failing > 0 {
        bucket.failing -= 1;
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    }
    if !headers.contains_key("authorization") {
        return status(StatusCode::FORBIDDEN);
    }
    let query = parse(uri.query().unwrap_or_default());
    let Some(key) = uri.path().strip_prefix(BUCKET).filter(|key| !key.is_empty()) else {
        return match method {
            Method::POST => remove_all(&mut bucket, &body),
            _ => list(&bucket, &query),
        };
    };
    let key = decode(key);
    match (method, query.get("uploadId")) {
        (Method::POST, None) => begin_upload(&mut bucket, &key),
        (Method::POST, Some(upload)) => complete_upload(&mut bucket, upload, key),
        (Method::PUT, Some(upload)) => put_part(&mut bucket, upload, (&query, body)),
        (Method::DELETE, Some(upload)) => {
            bucket.uploads.remove(upload);
            status(StatusCode::NO_CONTENT)
        }
        (Method::PUT, None) => put(&mut bucket, (key, body), &headers),
        _ => get(&bucket, &key, &headers),
    }
}

fn is_held(bucket: &Mutex<Bucket>, uri: &Uri) -> bool {
    let key = decode(uri.path().strip_prefix(BUCKET).unwrap_or_default());
    bucket.lock().expect("no request panics").held.contains(&key)
}

/// Removes the objects listed in XML.
fn remove_all(bucket: &mut Bucket, body: &[u8]) -> Answer {
    let list = String::from_utf8_lossy(body);
    let mut answer = String::from("<DeleteResult>");
    for piece in list.split("<Key>").skip(1) {
        let (key, _) = piece.split_once("</Key>").expect("XML");
        bucket.objects.remove(key);
        answer += &format!("<Deleted><Key>{key}</Key></Deleted>");
    }
    tagged(StatusCode::OK, Body::from(answer + "</DeleteResult>"))
}

fn put(bucket: &mut Bucket, (key, body): (String, Bytes), headers: &HeaderMap) -> Answer {
    let is_conditional = headers.get("if-none-match").is_some_and(|value| value == "*");
    if is_conditional && !bucket.ignores_conditions && bucket.objects.contains_key(&key) {
        return status(StatusCode::PRECONDITION_FAILED);
    }
    let is_manifest = key.contains("/images/");
    bucket.objects.insert(key, body);
    if is_manifest && bucket.failing_manifests > 0 {
        bucket.failing_manifests -= 1;
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    }
    if bucket.answers_lost > 0 {
        bucket.answers_lost -= 1;
        // The writer sees this as if another writer had created the object.
        return status(StatusCode::PRECONDITION_FAILED);
    }
    tagged(StatusCode::OK, Body::empty())
}

fn get(bucket: &Bucket, key: &str, headers: &HeaderMap) -> Answer {
    if bucket.are_reads_failing {
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let Some(object) = bucket.objects.get(key) else {
        return status(match bucket.are_missing_denied {
            true => StatusCode::FORBIDDEN,
            false => StatusCode::NOT_FOUND,
        });
    };
    let size = object.len();
    let Some(range) = headers.get("range").and_then(|range| range.to_str().ok()) else {
        return tagged(StatusCode::OK, Body::from(object.clone()));
    };
    let (first, last) = range.trim_start_matches("bytes=").split_once('-').expect("a range");
    let first: usize = first.parse().expect("a number");
    let last = last.parse::<usize>().map_or(size, |last| last + 1).min(size);
    if first >= last {
        return status(StatusCode::RANGE_NOT_SATISFIABLE);
    }
    let mut answer = tagged(StatusCode::PARTIAL_CONTENT, Body::from(object.slice(first..last)));
    let told = format!("bytes {first}-{}/{size}", last - 1);
    answer.headers_mut().insert("content-range", told.parse().expect("a header"));
    answer
}

fn list(bucket: &Bucket, query: &HashMap<String, String>) -> Answer {
    let prefix = query.get("prefix").map_or("", String::as_str);
    let after = query.get("continuation-token").map_or("", String::as_str);
    let mut found = bucket
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after)
        .peekable();
    let mut contents = String::new();
    let mut last = "";
    for (key, object) in found.by_ref().take(LISTED_MAX) {
        last = key;
        contents += &format!(
            "<Contents><Key>{key}</Key><Size>{}</Size><ETag>\"1\"</ETag>\
             <LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>",
            object.len()
        );
    }
    let is_truncated = found.peek().is_some();
    let next = if is_truncated {
        format!("<NextContinuationToken>{last}</NextContinuationToken>")
    } else {
        String::new()
    };
    let answer = format!(
        "<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{next}{contents}\
         </ListBucketResult>"
    );
    tagged(StatusCode::OK, Body::from(answer))
}

fn begin_upload(bucket: &mut Bucket, key: &str) -> Answer {
    bucket.upload_count += 1;
    let upload = format!("upload-{}", bucket.upload_count);
    bucket.uploads.insert(upload.clone(), BTreeMap::new());
    let answer = format!(
        "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>{key}</Key>\
         <UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
    );
    tagged(StatusCode::OK, Body::from(answer))
}

fn put_part(
    bucket: &mut Bucket,
    upload: &str,
    (query, body): (&HashMap<String, String>, Bytes),
) -> Answer {
    let number = query["partNumber"].parse().expect("a number");
    bucket.part_bytes_max = bucket.part_bytes_max.max(body.len());
    match bucket.uploads.get_mut(upload) {
        Some(parts) => {
            parts.insert(number, body);
            tagged(StatusCode::OK, Body::empty())
        }
        None => status(StatusCode::NOT_FOUND),
    }
}

fn complete_upload(bucket: &mut Bucket, upload: &str, key: String) -> Answer {
    let Some(parts) = bucket.uploads.remove(upload) else { return status(StatusCode::NOT_FOUND) };
    let whole: Vec<u8> = parts.into_values().flatten().collect();
    bucket.objects.insert(key.clone(), whole.into());
    let answer = format!(
        "<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>{key}</Key>\
         <ETag>\"1\"</ETag></CompleteMultipartUploadResult>"
    );
    tagged(StatusCode::OK, Body::from(answer))
}

fn status(code: StatusCode) -> Answer {
    tagged(code, Body::empty())
}

fn tagged(code: StatusCode, body: Body) -> Answer {
    Response::builder()
        .status(code)
        .header("etag", "\"1\"")
        .header("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        .body(body)
        .expect("the headers are sound")
}

fn parse(query: &str) -> HashMap<String, String> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(key, value)| (key.to_owned(), decode(&value.replace('+', " ")))).collect()
}

fn decode(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut decoded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (code, rest) = piece.split_at(2);
        decoded.push(char::from(u8::from_str_radix(code, 16).expect("two digits")));
        decoded += rest;
    }
    decoded
}
