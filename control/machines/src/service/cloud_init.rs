//! Validation of cloud-init data. cloud-init itself reports data that it cannot parse only in a log
//! inside the guest.

use saphyr_parser::{Event, Parser, Tag};

/// Length of the text in which cloud-init searches for a MIME header.
const MIME_HEAD_BYTES: usize = 4096;
const MIME_WORD: &str = "mime-version:";

/// Formats that cloud-init recognizes by the first line, case-insensitively.
const FORMATS: [(&str, Format); 9] = [
    ("#cloud-config-archive", Format::Yaml(Shape::List)),
    ("#cloud-config-jsonp", Format::Other),
    ("#cloud-config", Format::Yaml(Shape::Mapping)),
    ("#cloud-boothook", Format::Other),
    ("#include-once", Format::Other),
    ("#include", Format::Other),
    ("#part-handler", Format::Other),
    ("## template: jinja", Format::Other),
    ("#!", Format::Other),
];

#[derive(Clone, Copy)]
enum Format {
    Yaml(Shape),
    /// A format that is not validated here.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Mapping,
    List,
    Scalar,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Mapping => "a mapping (lines of KEY: VALUE)",
            Self::List => "a list (lines of - ITEM)",
            Self::Scalar => "a plain text",
        }
    }
}

/// Validates user data.
///
/// # Errors
/// A sentence that says why cloud-init would reject it.
pub(super) fn check_user_data(text: &str) -> Result<(), String> {
    let start = text.trim_start().to_lowercase();
    let Some((name, format)) = FORMATS.iter().find(|it| start.starts_with(it.0)) else {
        let head: String = text.chars().take(MIME_HEAD_BYTES).collect();
        if head.to_lowercase().contains(MIME_WORD) {
            return Ok(());
        }
        let first: String = text.lines().next().unwrap_or_default().chars().take(40).collect();
        return Err(format!(
            "unknown user-data format: the first line is {first:?}; cloud-init needs \
             #cloud-config, #! and a program, or another of its headers"
        ));
    };
    let Format::Yaml(wanted) = format else { return Ok(()) };
    let outline = Outline::of(text)?;
    match outline.shape {
        Some(found) if found != *wanted => {
            Err(format!("the content after {name} is {}, not {}", found.name(), wanted.name()))
        }
        // Without content after the first line, there is nothing to do.
        _ => Ok(()),
    }
}

/// Validates a network configuration.
///
/// # Errors
/// A sentence that says why cloud-init would reject it.
pub(super) fn check_network_config(text: &str) -> Result<(), String> {
    let outline = Outline::of(text)?;
    match outline.shape {
        Some(Shape::Mapping) => {}
        Some(found) => {
            return Err(format!("it is {}, not {}", found.name(), Shape::Mapping.name()));
        }
        None => return Err("it is empty".to_owned()),
    }
    let version = outline.scalar("network.version").or_else(|| outline.scalar("version"));
    match version {
        Some("1" | "2") => Ok(()),
        Some(other) => Err(format!(
            "unsupported network-config version {other:?}; cloud-init supports 1 and 2"
        )),
        None => Err("missing key version; add version: 1 or version: 2".to_owned()),
    }
}

/// Structure of a YAML document: its type, and the scalars of its top two levels.
#[derive(Debug, Default)]
struct Outline {
    /// `None` if the document is empty.
    shape: Option<Shape>,
    scalars: Vec<(String, String)>,
}

impl Outline {
    /// # Errors
    /// The text is not one YAML document, or has non-standard tags.
    fn of(text: &str) -> Result<Self, String> {
        let mut outline = Self::default();
        let mut reading = Reading::default();
        let mut document_count = 0;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| {
                let at = error.marker();
                let place = format!("line {}, column {}", at.line(), at.col() + 1);
                format!("invalid YAML: {place}: {}", error.info())
            })?;
            let line = span.start.line();
            if matches!(event, Event::DocumentStart(_)) {
                document_count += 1;
            }
            if document_count > 1 {
                return Err(format!(
                    "line {line}: a second YAML document begins; only one is allowed"
                ));
            }
            if let Some(tag) = tag_of(&event).filter(|it| !is_standard(it)) {
                return Err(format!("line {line}: unknown YAML tag {tag}"));
            }
            reading.take(&event, &mut outline);
        }
        Ok(outline)
    }

    fn scalar(&self, path: &str) -> Option<&str> {
        self.scalars.iter().find(|it| it.0 == path).map(|it| it.1.as_str())
    }
}

/// State of the parser.
#[derive(Default)]
struct Reading {
    /// Open mappings and lists. A mapping has its current key, once that was read.
    open: Vec<(Shape, Option<String>)>,
}

impl Reading {
    fn take(&mut self, event: &Event<'_>, outline: &mut Outline) {
        match event {
            Event::MappingStart(..) => self.enter(Shape::Mapping, outline),
            Event::SequenceStart(..) => self.enter(Shape::List, outline),
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
                self.end_value();
            }
            Event::Scalar(text, ..) => self.take_scalar(text, outline),
            Event::Alias(_) => self.take_scalar("", outline),
            _ => {}
        }
    }

    fn enter(&mut self, shape: Shape, outline: &mut Outline) {
        outline.shape.get_or_insert(shape);
        self.open.push((shape, None));
    }

    fn take_scalar(&mut self, text: &str, outline: &mut Outline) {
        outline.shape.get_or_insert(Shape::Scalar);
        let is_key = matches!(self.open.last(), Some((Shape::Mapping, None)));
        if is_key {
            let (_, key) = self.open.last_mut().expect("it was looked at");
            *key = Some(text.to_owned());
            return;
        }
        let keys: Option<Vec<_>> = self.open.iter().map(|it| it.1.as_deref()).collect();
        if let Some(keys) = keys.filter(|it| (1..=2).contains(&it.len())) {
            outline.scalars.push((keys.join("."), text.to_owned()));
        }
        self.end_value();
    }

    /// Marks the end of a value, or of a key that is not a scalar.
    fn end_value(&mut self) {
        if let Some((Shape::Mapping, key)) = self.open.last_mut() {
            *key = match key {
                Some(_) => None,
                None => Some(String::new()),
            };
        }
    }
}

fn tag_of<'a>(event: &'a Event<'_>) -> Option<&'a Tag> {
    match event {
        Event::Scalar(.., tag) | Event::SequenceStart(_, tag) | Event::MappingStart(_, tag) => {
            tag.as_deref()
        }
        _ => None,
    }
}

/// Returns whether a tag is one of YAML's own, or the non-specific tag `!`.
fn is_standard(tag: &Tag) -> bool {
    tag.handle == "tag:yaml.org,2002:" || tag.handle.is_empty() && tag.suffix == "!"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cloud_init_reads_is_taken() {
        for text in [
            "#cloud-config\n",
            "#cloud-config\nhostname: it's <web> & co\n",
            "\n #Cloud-Config\nruncmd:\n  - [ls, -l]\n  - echo 'a: b'\n",
            "#cloud-config\nusers: &all [default]\nx: *all\n",
            "#cloud-config\n{\"packages\": [\"nginx\"]}",
            "#cloud-config\na: !!str 1\nb: ! 2\n",
            "#cloud-config\n? [a, b]\n: c\nd: e\n",
            "#cloud-config-archive\n- type: text/cloud-config\n  content: 'a: b'\n",
            "#!/bin/sh\n: {",
            "#include\nhttps://example.com/a\n",
            "## template: jinja\n#cloud-config\n{% if a %}\n",
            "Content-Type: multipart/mixed; boundary=\"a\"\nMIME-Version: 1.0\n\n--a--\n",
        ] {
            assert_eq!(check_user_data(text), Ok(()), "{text:?}");
        }
        for text in ["version: 2\nethernets: {}\n", "network:\n  version: 1\n  config: []\n"] {
            assert_eq!(check_network_config(text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn what_cloud_init_would_leave_is_refused_with_its_place() {
        for (text, why) in [
            ("", "first line is \"\""),
            ("hostname: web\n", "first line is \"hostname: web\""),
            ("# cloud-config\na: b\n", "#cloud-config"),
            ("\u{feff}#cloud-config\n", "first line is"),
            ("#cloud-config\na: [b\n", "invalid YAML: line"),
            ("#cloud-config\na: b\n\tc: d\n", "invalid YAML: line 2"),
            ("#cloud-config\na: *b\n", "invalid YAML: line 2"),
            ("#cloud-config\n- a\n", "a list"),
            ("#cloud-config\nword\n", "a plain text"),
            ("#cloud-config\na: b\n---\nc: d\n", "line 3: a second YAML document"),
            ("#cloud-config\na: !vault b\n", "line 2: unknown YAML tag !vault"),
            ("#cloud-config-archive\na: b\n", "a mapping"),
        ] {
            let refused = check_user_data(text).expect_err(text);
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
        for (text, why) in [
            ("", "empty"),
            ("- a", "a list"),
            ("ethernets: {}\n", "missing key version"),
            ("a: {version: 2}\n", "missing key version"),
            ("version: 3\n", "\"3\""),
            ("version: 2\nversion", "invalid YAML"),
        ] {
            let refused = check_network_config(text).expect_err(text);
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
    }
}
