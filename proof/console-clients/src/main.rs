//! Fetches the browser driver before tests need it. With the word `pictures` and a folder it takes
//! the screenshots of the guide instead. With `watch` it measures the resources that watching
//! browsers use.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Result, bail};
use console_clients::{Fixture, browser};

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => browser().map(|_| ()),
        ["watch"] => Fixture::start()?.run("watching"),
        ["pictures", folder] => Fixture::with_everything()?.take_pictures(Path::new(folder)),
        _ => bail!("usage: fetch-console-clients [watch | pictures FOLDER]"),
    }
}
