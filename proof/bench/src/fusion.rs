//! The Fusion ioMemory matrix: transfer size, queue depth and pattern, by fio.

use anyhow::{Result, bail};
use results::Row;

use crate::run::{Plan, Session};

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {}

pub(crate) fn plan<'plan>(_: &'plan Arguments, _: &'plan Session) -> Result<Plan<'plan>> {
    bail!("the suite fusion is not built yet")
}

pub(crate) fn describe(_: &[&Row]) -> String {
    String::new()
}
