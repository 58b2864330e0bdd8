//! Reference conditions, each with SQL text and a truth value, and random records.
//!
//! Independent of the crate: values are text, integers or NULL, and evaluation never fails.

use model::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

/// A record with the values of its JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<String>,
    pub(crate) text: String,
    s: Option<String>,
    n: Option<i64>,
    t: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Text {
    Key,
    S,
    T,
    Literal(String),
    Upper(Box<Text>),
    Concat(Box<Text>, Box<Text>),
    Coalesce(Box<Text>, Box<Text>),
}

#[derive(Clone, Debug)]
pub(crate) enum Number {
    Partition,
    Offset,
    N,
    Literal(i64),
    Null,
    Add(Box<Number>, Box<Number>),
    Negate(Box<Number>),
    Length(Box<Text>),
}

#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Texts(&'static str, Text, Text),
    Numbers(&'static str, Number, Number),
    In(Number, Vec<Option<i64>>, bool),
    Between(Number, Number, Number, bool),
    Like(Text, String, bool),
    IsNull(Text, bool),
    Distinct(Number, Number, bool),
    IsTrue(Box<Condition>),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

impl Text {
    fn sql(&self) -> String {
        match self {
            Self::Key => "key".to_owned(),
            Self::S => "(value->>'s')".to_owned(),
            Self::T => "(value->'o'->>'t')".to_owned(),
            Self::Literal(text) => format!("'{text}'"),
            Self::Upper(text) => format!("upper({})", text.sql()),
            Self::Concat(left, right) => format!("({} || {})", left.sql(), right.sql()),
            Self::Coalesce(left, right) => format!("coalesce({}, {})", left.sql(), right.sql()),
        }
    }

    fn value(&self, document: &Document) -> Option<String> {
        match self {
            Self::Key => document.key.clone(),
            Self::S => document.s.clone(),
            Self::T => document.t.clone(),
            Self::Literal(text) => Some(text.clone()),
            Self::Upper(text) => Some(text.value(document)?.to_uppercase()),
            Self::Concat(left, right) => Some(left.value(document)? + &right.value(document)?),
            Self::Coalesce(left, right) => left.value(document).or_else(|| right.value(document)),
        }
    }
}

impl Number {
    fn sql(&self) -> String {
        match self {
            Self::Partition => "partition".to_owned(),
            Self::Offset => "\"offset\"".to_owned(),
            Self::N => "(value->>'n')::bigint".to_owned(),
            Self::Literal(number) => format!("({number})"),
            Self::Null => "NULL::int".to_owned(),
            Self::Add(left, right) => format!("({} + {})", left.sql(), right.sql()),
            Self::Negate(number) => format!("(- {})", number.sql()),
            Self::Length(text) => format!("length({})", text.sql()),
        }
    }

    fn value(&self, document: &Document) -> Option<i64> {
        match self {
            Self::Partition => Some(i64::from(document.partition)),
            Self::Offset => Some(document.offset),
            Self::N => document.n,
            Self::Literal(number) => Some(*number),
            Self::Null => None,
            Self::Add(left, right) => Some(left.value(document)? + right.value(document)?),
            Self::Negate(number) => Some(-number.value(document)?),
            Self::Length(text) => i64::try_from(text.value(document)?.chars().count()).ok(),
        }
    }
}

impl Condition {
    pub(crate) fn sql(&self) -> String {
        let not = |is_negated: &bool| if *is_negated { "NOT " } else { "" };
        match self {
            Self::Texts(operator, left, right) => {
                format!("({} {operator} {})", left.sql(), right.sql())
            }
            Self::Numbers(operator, left, right) => {
                format!("({} {operator} {})", left.sql(), right.sql())
            }
            Self::In(number, list, negated) => {
                let item = |it: &Option<i64>| it.map_or("NULL".to_owned(), |it| it.to_string());
                let list: Vec<String> = list.iter().map(item).collect();
                format!("({} {}IN ({}))", number.sql(), not(negated), list.join(", "))
            }
            Self::Between(number, low, high, negated) => {
                let (low, high) = (low.sql(), high.sql());
                format!("({} {}BETWEEN {low} AND {high})", number.sql(), not(negated))
            }
            Self::Like(text, pattern, negated) => {
                format!("({} {}LIKE '{pattern}')", text.sql(), not(negated))
            }
            Self::IsNull(text, negated) => format!("({} IS {}NULL)", text.sql(), not(negated)),
            Self::Distinct(left, right, negated) => {
                format!("({} IS {}DISTINCT FROM {})", left.sql(), not(negated), right.sql())
            }
            Self::IsTrue(inner) => format!("({} IS TRUE)", inner.sql()),
            Self::Not(inner) => format!("(NOT {})", inner.sql()),
            Self::And(left, right) => format!("({} AND {})", left.sql(), right.sql()),
            Self::Or(left, right) => format!("({} OR {})", left.sql(), right.sql()),
        }
    }

    pub(crate) fn truth(&self, document: &Document) -> Truth {
        match self {
            Self::Texts(operator, left, right) => {
                compare(operator, left.value(document), right.value(document))
            }
            Self::Numbers(operator, left, right) => {
                compare(operator, left.value(document), right.value(document))
            }
            Self::In(number, list, negated) => {
                let value = number.value(document);
                let each = list.iter().map(|it| compare("=", value, *it));
                negate_if(*negated, each.fold(Truth::False, or))
            }
            Self::Between(number, low, high, negated) => {
                let value = number.value(document);
                let above = compare(">=", value, low.value(document));
                let below = compare("<=", value, high.value(document));
                negate_if(*negated, and(above, below))
            }
            Self::Like(text, pattern, negated) => {
                let truth = match text.value(document) {
                    None => Truth::Unknown,
                    Some(text) => {
                        let text: Vec<char> = text.chars().collect();
                        let pattern: Vec<char> = pattern.chars().collect();
                        of(is_like(&text, &pattern))
                    }
                };
                negate_if(*negated, truth)
            }
            Self::IsNull(text, negated) => of(text.value(document).is_none() != *negated),
            Self::Distinct(left, right, negated) => {
                of((left.value(document) != right.value(document)) != *negated)
            }
            Self::IsTrue(inner) => of(inner.truth(document) == Truth::True),
            Self::Not(inner) => negate_if(true, inner.truth(document)),
            Self::And(left, right) => and(left.truth(document), right.truth(document)),
            Self::Or(left, right) => or(left.truth(document), right.truth(document)),
        }
    }
}

fn of(is_true: bool) -> Truth {
    if is_true { Truth::True } else { Truth::False }
}

fn negate_if(is_negated: bool, truth: Truth) -> Truth {
    match truth {
        Truth::True if is_negated => Truth::False,
        Truth::False if is_negated => Truth::True,
        other => other,
    }
}

fn and(left: Truth, right: Truth) -> Truth {
    match (left, right) {
        (Truth::False, _) | (_, Truth::False) => Truth::False,
        (Truth::True, Truth::True) => Truth::True,
        _ => Truth::Unknown,
    }
}

fn or(left: Truth, right: Truth) -> Truth {
    negate_if(true, and(negate_if(true, left), negate_if(true, right)))
}

fn compare<T: Ord>(operator: &str, left: Option<T>, right: Option<T>) -> Truth {
    let (Some(left), Some(right)) = (left, right) else { return Truth::Unknown };
    of(match operator {
        "=" => left == right,
        "<>" => left != right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        _ => left >= right,
    })
}

/// Matches recursively, trying every length for `%`.
fn is_like(text: &[char], pattern: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|at| is_like(&text[at..], rest)),
        Some((wanted, rest)) => match text.split_first() {
            Some((letter, text)) => (*wanted == '_' || wanted == letter) && is_like(text, rest),
            None => false,
        },
    }
}

pub(crate) fn random_document(random: &mut Random) -> Document {
    let partition = if random.one_in(2) { 0 } else { 3 };
    let offset = i64::try_from(random.below(8)).expect("it is small");
    let key = random.pick(&[None, Some(""), Some("a"), Some("ab"), Some("B"), Some("äb")]);
    let key = key.map(str::to_owned);
    let s = random.pick(&[None, Some("a"), Some("abc"), Some("abd"), Some("ABC"), Some("é\"")]);
    let t = random.pick(&[None, Some("a"), Some("bb"), Some("abcab")]);
    let n = random.pick(&[None, Some(-1), Some(0), Some(1), Some(2), Some(5), Some(7)]);
    if random.one_in(8) {
        let text = random.pick(&["", "{\"s\":\"a\",\"n\":1", "[1]", "{\"s\":\"a\"} x", "{'s':1}"]);
        return Document {
            partition,
            offset,
            key,
            text: text.to_owned(),
            s: None,
            n: None,
            t: None,
        };
    }
    let quoted = |text: Option<&str>| match text {
        None => "null".to_owned(),
        Some("é\"") => "\"\\u00e9\\\"\"".to_owned(),
        Some(text) => format!("\"{text}\""),
    };
    let number = n.map_or("null".to_owned(), |it| it.to_string());
    let noise = random.pick(&["", "\"s\":\"old\",", "\"z\":[{\"s\":[1,{}]},\"\\\\\"],", " "]);
    let text = format!(
        "{{{noise}\"o\":{{\"x\":[1,2],\"t\":{}}},\"s\":{},\"n\" : {number}}}",
        quoted(t),
        quoted(s)
    );
    let own = |it: Option<&str>| it.map(str::to_owned);
    Document { partition, offset, key, text, s: own(s), n, t: own(t) }
}

const OPERATORS: &[&str] = &["=", "<>", "<", "<=", ">", ">="];

pub(crate) fn random_condition(random: &mut Random, depth: u32) -> Condition {
    let inner = |random: &mut Random| Box::new(random_condition(random, depth - 1));
    let count = if depth == 0 { 7 } else { 13 };
    match random.below(count) {
        0 => {
            Condition::Texts(random.pick(OPERATORS), random_text(random, 2), random_text(random, 2))
        }
        1 => {
            let (left, right) = (random_number(random, 2), random_number(random, 2));
            Condition::Numbers(random.pick(OPERATORS), left, right)
        }
        2 => {
            let item =
                |random: &mut Random| random.pick(&[None, Some(0), Some(1), Some(2), Some(5)]);
            let list = (0..=random.below(3)).map(|_| item(random)).collect();
            Condition::In(random_number(random, 1), list, random.one_in(2))
        }
        3 => {
            let (number, low) = (random_number(random, 1), random_number(random, 1));
            Condition::Between(number, low, random_number(random, 1), random.one_in(2))
        }
        4 => {
            let patterns = ["a%", "%b", "a_c", "%", "", "_", "%a%b%", "ab%c", "__", "%é_"];
            Condition::Like(
                random_text(random, 1),
                random.pick(&patterns).to_owned(),
                random.one_in(2),
            )
        }
        5 => Condition::IsNull(random_text(random, 1), random.one_in(2)),
        6 => {
            let (left, right) = (random_number(random, 1), random_number(random, 1));
            Condition::Distinct(left, right, random.one_in(2))
        }
        7 => Condition::IsTrue(inner(random)),
        8 => Condition::Not(inner(random)),
        9 | 10 => Condition::And(inner(random), inner(random)),
        _ => Condition::Or(inner(random), inner(random)),
    }
}

fn random_text(random: &mut Random, depth: u32) -> Text {
    let inner = |random: &mut Random| Box::new(random_text(random, depth - 1));
    match random.below(if depth == 0 { 4 } else { 7 }) {
        0 => Text::Key,
        1 => Text::S,
        2 => Text::T,
        3 => Text::Literal(random.pick(&["", "a", "abc", "ABC", "b"]).to_owned()),
        4 => Text::Upper(inner(random)),
        5 => Text::Concat(inner(random), inner(random)),
        _ => Text::Coalesce(inner(random), inner(random)),
    }
}

fn random_number(random: &mut Random, depth: u32) -> Number {
    let inner = |random: &mut Random| Box::new(random_number(random, depth - 1));
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => Number::Partition,
        1 => Number::Offset,
        2 => Number::N,
        3 => Number::Literal(random.pick(&[-1, 0, 1, 2, 5])),
        4 => Number::Null,
        5 => Number::Add(inner(random), inner(random)),
        6 => Number::Negate(inner(random)),
        _ => Number::Length(Box::new(random_text(random, depth - 1))),
    }
}
