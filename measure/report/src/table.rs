//! Tables: text left-aligned, numbers right-aligned, figures of other hardware in grey.

use maud::{Markup, html};

use crate::figure::{Estimated, Figure, Format};

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    /// A possibly long name.
    Code(String),
    Number(Figure, Format),
    /// A median with its interval below it.
    Estimate(Estimated, Format),
    /// A figure that a paper states about other hardware.
    Paper(Figure, Format),
    /// A verdict in a word.
    Verdict {
        is_good: Option<bool>,
        text: String,
    },
    /// Not measured.
    Missing,
}

/// A table with its caption.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Common heading of several columns.
    pub(crate) above: Option<String>,
    is_paper: bool,
    is_text: bool,
}

impl Column {
    pub(crate) fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), above: None, is_paper: false, is_text: true }
    }

    pub(crate) fn number(name: impl Into<String>) -> Self {
        Self { name: name.into(), above: None, is_paper: false, is_text: false }
    }

    pub(crate) fn below(mut self, above: impl Into<String>) -> Self {
        self.above = Some(above.into());
        self
    }

    /// Marks a column of other hardware.
    pub(crate) fn paper(mut self) -> Self {
        self.is_paper = true;
        self
    }

    fn class(&self) -> &'static str {
        match (self.is_text, self.is_paper) {
            (true, _) => "t",
            (false, true) => "r paper",
            (false, false) => "r",
        }
    }
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn estimate(estimate: Option<Estimated>, format: Format) -> Self {
        estimate.map_or(Self::Missing, |estimate| Self::Estimate(estimate, format))
    }

    pub(crate) fn number(figure: Option<Figure>, format: Format) -> Self {
        figure.map_or(Self::Missing, |figure| Self::Number(figure, format))
    }

    fn show(&self) -> Markup {
        html! {
            @match self {
                Self::Text(text) => td class=(text_class(text)) { (text) },
                Self::Code(text) => td.t { code { (text) } },
                Self::Number(figure, format) => td.r { (figure.show(*format)) },
                Self::Estimate(estimate, format) => td.r {
                    (estimate.median.show(*format))
                    @if estimate.interval.is_some() { br; (estimate.show_interval(*format)) }
                },
                Self::Paper(figure, format) => td.r.paper { (figure.show(*format)) },
                Self::Verdict { is_good, text } => td class=(verdict_class(*is_good)) { (text) },
                Self::Missing => td.r.missing { "–" },
            }
        }
    }
}

/// Maximum length of text that is kept on one line.
const SHORT_TEXT_MAX: usize = 36;

fn text_class(text: &str) -> &'static str {
    if text.chars().count() <= SHORT_TEXT_MAX { "t short" } else { "t" }
}

fn verdict_class(is_good: Option<bool>) -> &'static str {
    match is_good {
        Some(true) => "t good",
        Some(false) => "t bad",
        None => "t open",
    }
}

impl Table {
    pub(crate) fn show(&self) -> Markup {
        let has_groups = self.columns.iter().any(|column| column.above.is_some());
        html! {
            div.scroll tabindex="0" role="region" aria-label=(self.caption) {
                table {
                    caption { (self.caption) }
                    thead {
                        @if has_groups {
                            tr {
                                @for (name, span, class) in self.spans() {
                                    th colspan=(span) class=(class) scope="colgroup" { (name) }
                                }
                            }
                        }
                        tr {
                            @for column in &self.columns {
                                th class=(column.class()) scope="col" { (column.name) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows { tr { @for cell in row { (cell.show()) } } }
                    }
                }
            }
        }
    }

    /// Returns a chart's table of numbers, collapsed initially.
    pub(crate) fn show_behind(&self) -> Markup {
        html! { details { summary { "Figures of this chart" } (self.show()) } }
    }

    fn spans(&self) -> Vec<(String, usize, &'static str)> {
        let mut spans: Vec<(String, usize, &'static str)> = Vec::new();
        for column in &self.columns {
            let name = column.above.clone().unwrap_or_default();
            match spans.last_mut() {
                Some((last, count, _)) if *last == name => *count += 1,
                _ if name.is_empty() => spans.push((name, 1, "")),
                _ if column.is_paper => spans.push((name, 1, "group paper")),
                _ => spans.push((name, 1, "group")),
            }
        }
        spans
    }
}
