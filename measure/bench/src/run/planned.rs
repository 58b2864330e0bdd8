//! Plans of command lines, for tests.

use std::path::PathBuf;

use clap::Parser;

use super::{Options, Session};

#[derive(Parser)]
struct Line<Arguments: clap::Args> {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    options: Options,
}

/// Parses the words of a suite's command line.
pub(crate) fn parsed<Arguments: clap::Args>(words: &[&str]) -> (Arguments, Session) {
    let words = ["bench"].iter().chain(words);
    let line = Line::try_parse_from(words).expect("the words are known");
    let session = Session::new(&line.options, PathBuf::new());
    (line.arguments, session)
}
