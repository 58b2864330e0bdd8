//! The guide's table, and an independent evaluation of rights.

use std::fmt;

use anyhow::{Context, Result, ensure};

pub(crate) const OPERATIONS: [&str; 11] = [
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
];
pub(crate) const KINDS: [&str; 4] = ["Topic", "Group", "Cluster", "TransactionalId"];

/// An operation on resources of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) operation: &'static str,
    pub(crate) kind: &'static str,
}

impl Right {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        OPERATIONS
            .into_iter()
            .flat_map(|operation| KINDS.into_iter().map(move |kind| Self { operation, kind }))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut all = Self::all();
        all.find(|it| it.to_string() == text).with_context(|| format!("{text:?} is no right"))
    }

    /// Returns whether this right implies the other.
    fn gives(self, other: Self) -> bool {
        let implied = match other.operation {
            "Describe" => matches!(self.operation, "Read" | "Write" | "Delete" | "Alter"),
            "DescribeConfigs" => self.operation == "AlterConfigs",
            _ => false,
        };
        self.kind == other.kind
            && (self.operation == other.operation || self.operation == "All" || implied)
    }

    /// Returns whether a denial of this right removes the other.
    fn takes(self, other: Self) -> bool {
        self.kind == other.kind && (self.operation == other.operation || self.operation == "All")
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.operation, self.kind)
    }
}

/// Rights of one client: on the cluster, and on all resources whose names begin with `seen`.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) allowed: Vec<Right>,
    pub(crate) denied: Option<Right>,
}

impl User {
    fn has(&self, right: Right) -> bool {
        !self.denied.is_some_and(|it| it.takes(right))
            && self.allowed.iter().any(|it| it.gives(right))
    }
}

/// Answer to a forbidden request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    EachName,
    Request,
    LeftOut,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Alternatives. One of them is sufficient, with all of its rights.
    pub(crate) ways: Vec<Vec<Right>>,
    pub(crate) refused: Refused,
}

impl Row {
    pub(crate) fn api(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    pub(crate) fn allows(&self, user: &User) -> bool {
        self.ways.iter().any(|way| way.iter().all(|right| user.has(*right)))
    }

    /// Same, for names without an entry.
    pub(crate) fn allows_all_names(&self, user: &User) -> bool {
        let mut ways = self.ways.iter();
        ways.any(|way| way.iter().all(|right| right.kind == "Cluster" && user.has(*right)))
    }
}

/// Reads the table below the heading.
pub(crate) fn rows(guide: &str) -> Result<Vec<Row>> {
    let (_, below) = guide.split_once("\n| request | rights | ").context("no table")?;
    let lines = below.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut rows = Vec::new();
    for line in lines {
        rows.extend(rows_of(line).with_context(|| format!("in the line {line:?}"))?);
    }
    Ok(rows)
}

/// Returns the rows of a line, which may concern several requests.
fn rows_of(line: &str) -> Result<Vec<Row>> {
    let cells: Vec<_> =
        line.trim_matches('|').split('|').map(|it| it.trim().replace('`', "")).collect();
    ensure!(cells.len() == 3, "three cells");
    let ways = match &*cells[1] {
        "none" => vec![Vec::new()],
        ways => ways
            .split(" or ")
            .map(|way| way.split(" and ").map(Right::parse).collect())
            .collect::<Result<_>>()?,
    };
    let refused = match &*cells[2] {
        "each name" => Refused::EachName,
        "the request" => Refused::Request,
        "left out" => Refused::LeftOut,
        other => anyhow::bail!("{other:?} is no way to refuse"),
    };
    let names = cells[0].split(", ").map(str::to_owned);
    Ok(names.map(|name| Row { name, ways: ways.clone(), refused }).collect())
}
