//! Files of the web page, built-in or from a folder. All are read and compressed at startup.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

/// Built-in files by path.
const BUILT_IN: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// Limits on the files of a page, far above actual pages.
const FILES_MAX: usize = 1_000;
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Folder of files with content hashes in their names, which can be cached forever.
const LASTING_FOLDER: &str = "/assets/";

const NO_PAGE: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <title>Memlane</title></head><body><h1>There is no page in this console</h1>\
    <p>It was built without Node.js. The REST interface is served all the same: <code>/v1</code>, \
    <code>/openapi.json</code>, <code>/console/v1</code>.</p><p>To have the page: in \
    <code>control/web</code> run <code>npm ci</code> and <code>npm run build</code>, then build \
    memlane-console again, or start it with <code>--page control/web/dist</code>.</p></body>\
    </html>";

/// Returns whether the program contains a page.
pub(crate) fn is_built_in() -> bool {
    BUILT_IN.iter().any(|(name, _)| *name == "index.html")
}

#[derive(Debug)]
struct File {
    content_type: HeaderValue,
    tag: HeaderValue,
    plain: Bytes,
    gzip: Option<Bytes>,
}

/// The page, in memory.
#[derive(Debug)]
pub(crate) struct Page {
    files: BTreeMap<String, File>,
}

impl Page {
    /// Loads the page from a folder, or the built-in one.
    pub(crate) fn load(folder: Option<&Path>) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        match folder {
            Some(folder) => {
                add(&mut files, folder, "/")?;
                ensure!(files.contains_key("/index.html"), "no index.html in {folder:?}");
            }
            None => {
                for (name, contents) in BUILT_IN {
                    files.insert(format!("/{name}"), File::of(name, contents)?);
                }
            }
        }
        if files.is_empty() {
            files.insert("/index.html".to_owned(), File::of("index.html", NO_PAGE.as_bytes())?);
        }
        Ok(Self { files })
    }

    /// Returns the file at a path, or `None` if there is none.
    pub(crate) fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Response> {
        let path = if path == "/" { "/index.html" } else { path };
        let file = self.files.get(path)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        let lasting = "public, max-age=31536000, immutable";
        let kept = if path.starts_with(LASTING_FOLDER) { lasting } else { "no-cache" };
        let common = [
            (header::ETAG, file.tag.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
            (header::VARY, HeaderValue::from_static("accept-encoding")),
        ];
        if headers.get(header::IF_NONE_MATCH) == Some(&file.tag) {
            return Some((StatusCode::NOT_MODIFIED, common).into_response());
        }
        let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|it| it.to_str().ok());
        let takes_gzip = accepted.unwrap_or_default().split(',').any(|it| it.trim() == "gzip");
        let content_type = [(header::CONTENT_TYPE, file.content_type.clone())];
        Some(match file.gzip.as_ref().filter(|_| takes_gzip) {
            Some(gzip) => {
                let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
                (common, content_type, encoding, gzip.clone()).into_response()
            }
            None => (common, content_type, file.plain.clone()).into_response(),
        })
    }
}

impl File {
    fn of(name: &str, contents: &[u8]) -> anyhow::Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(contents).context("memory takes all")?;
        let gzip = encoder.finish().context("memory takes all")?;
        let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest(&SHA256, contents)));
        Ok(Self {
            content_type: HeaderValue::from_static(content_type(name)),
            tag: HeaderValue::try_from(tag).context("tags are plain text")?,
            plain: Bytes::copy_from_slice(contents),
            gzip: (gzip.len() < contents.len()).then(|| gzip.into()),
        })
    }
}

fn add(files: &mut BTreeMap<String, File>, folder: &Path, prefix: &str) -> anyhow::Result<()> {
    let unreadable = || format!("cannot read the page in {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().with_context(unreadable)?;
        if kind.is_dir() {
            add(files, &entry.path(), &format!("{prefix}{name}/"))?;
        } else if kind.is_file() {
            let bytes = entry.metadata().with_context(unreadable)?.len();
            ensure!(bytes <= FILE_BYTES_MAX, "{:?} is too large ({bytes} bytes)", entry.path());
            ensure!(
                files.len() < FILES_MAX,
                "{} has more than {FILES_MAX} files",
                folder.display()
            );
            let contents = std::fs::read(entry.path()).with_context(unreadable)?;
            files.insert(format!("{prefix}{name}"), File::of(&name, &contents)?);
        }
    }
    Ok(())
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(page: &Page, path: &str, headers: &[(header::HeaderName, &str)]) -> Option<Response> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("plain text")));
        page.answer(&Method::GET, path, &headers.collect())
    }

    #[test]
    fn files_of_a_folder_are_served_with_their_types_and_tags() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("there is room");
        };
        Page::load(Some(folder.path())).expect_err("nothing is in it");
        std::fs::create_dir(folder.path().join("assets")).expect("a folder");
        write("index.html", &"<p>".repeat(100));
        write("assets/page.js", "1");
        let page = Page::load(Some(folder.path())).expect("a page");
        let index = get(&page, "/", &[(header::ACCEPT_ENCODING, "br, gzip")]).expect("it is there");
        assert_eq!(index.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(index.headers()[header::CACHE_CONTROL], "no-cache");
        let tag = index.headers()[header::ETAG].to_str().expect("plain text").to_owned();
        let again = get(&page, "/index.html", &[(header::IF_NONE_MATCH, &tag)]);
        assert_eq!(again.expect("it is there").status(), StatusCode::NOT_MODIFIED);
        let script = get(&page, "/assets/page.js", &[]).expect("it is there");
        assert_eq!(script.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert!(script.headers().get(header::CONTENT_ENCODING).is_none());
        for path in ["/assets", "/assets/../index.html", "/nothing", ""] {
            assert!(get(&page, path, &[]).is_none(), "{path}");
        }
        assert!(page.answer(&Method::POST, "/", &HeaderMap::new()).is_none());
    }

    #[test]
    fn without_a_page_it_is_said_why() {
        assert!(NO_PAGE.contains("npm run build"));
        assert!(!NO_PAGE.contains("style="));
    }
}
