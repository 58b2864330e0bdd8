//! The complete page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::book::Book;
use crate::section;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Content security policy: nothing may be fetched, whatever a record contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Renders the page. The document is embedded last, because sections add to it.
pub(crate) fn write(book: &Book) -> String {
    let bodies: Vec<(&section::Section, Option<Markup>)> =
        section::ALL.iter().map(|section| (section, (section.body)(book))).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Memlane, measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Memlane, measured" }
                    button id="theme" type="button" hidden { "Light or dark" }
                }
                nav aria-label="Sections" {
                    @for (section, _) in &bodies { a href={ "#" (section.id) } { (section.title) } }
                }
                main {
                    @for (index, (section, body)) in bodies.iter().enumerate() {
                        section id=(section.id) {
                            h2 { (index + 1) ". " (section.title) }
                            @match body {
                                Some(body) => (body),
                                None => p.none { "Nothing of this was measured in these runs." },
                            }
                        }
                    }
                }
                script type="application/json" id="document" { (PreEscaped(embedded(book))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Returns the document as JSON that cannot terminate its element.
fn embedded(book: &Book) -> String {
    book.document().to_string().replace('<', "\\u003c")
}
