//! Heat map of two parameters, with numbers in the cells. Darker means more.

use maud::{Markup, html};

use crate::figure::{Estimated, Format};

const LEFT: f64 = 56.0;
const TOP: f64 = 22.0;
const CELL_WIDTH: f64 = 58.0;
const CELL_HEIGHT: f64 = 21.0;

/// Number of shades in the style sheet.
const SHADES: f64 = 9.0;

pub(crate) struct Heat {
    pub(crate) title: String,
    pub(crate) hint: &'static str,
    pub(crate) format: Format,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<String>,
    pub(crate) column_name: &'static str,
    /// By row, then column.
    pub(crate) cells: Vec<Vec<Option<Estimated>>>,
}

impl Heat {
    pub(crate) fn show(&self) -> Markup {
        let max = self.cells.iter().flatten().flatten().map(Estimated::value).fold(0.0, f64::max);
        let width = LEFT + self.columns.len() as f64 * CELL_WIDTH + 4.0;
        let height = TOP + self.rows.len() as f64 * CELL_HEIGHT + 22.0;
        html! {
            figure.chart {
                figcaption { (self.title) span.hint { (self.format.hint(self.hint)) } }
                svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(self.title) {
                    @for (index, column) in self.columns.iter().enumerate() {
                        text.tick x=(LEFT + (index as f64 + 0.5) * CELL_WIDTH) y=(TOP - 7.0)
                            text-anchor="middle" { (column) }
                    }
                    @for (index, row) in self.rows.iter().enumerate() {
                        text.tick x=(LEFT - 8.0) y=(TOP + (index as f64 + 0.5) * CELL_HEIGHT + 4.0)
                            text-anchor="end" { (row) }
                        @for (column, cell) in self.cells[index].iter().enumerate() {
                            @if let Some(estimate) = cell {
                                (self.cell((index, column), estimate, max))
                            }
                        }
                    }
                    text.name x=(f64::midpoint(LEFT, width)) y=(height - 6.0)
                        text-anchor="middle" { (self.column_name) }
                }
            }
        }
    }

    fn cell(&self, (row, column): (usize, usize), estimate: &Estimated, max: f64) -> Markup {
        let x = LEFT + column as f64 * CELL_WIDTH;
        let y = TOP + row as f64 * CELL_HEIGHT;
        let shade = (estimate.value() / max.max(f64::MIN_POSITIVE) * SHADES).floor();
        let shade = shade.clamp(0.0, SHADES - 1.0);
        let (size, depth) = (&self.rows[row], &self.columns[column]);
        html! {
            g class={ "cell h" (shade) } {
                rect x=(x) y=(y) width=(CELL_WIDTH - 1.5) height=(CELL_HEIGHT - 1.5) {
                    title { (size) ", " (self.column_name) " " (depth) ": "
                        (estimate.sentence(self.format)) }
                }
                text x=(x + CELL_WIDTH / 2.0) y=(y + CELL_HEIGHT / 2.0 + 3.0) text-anchor="middle"
                    data-v=(estimate.value()) data-p=(estimate.median.pointer) {
                    (self.format.text(estimate.value()))
                }
            }
        }
    }
}
