//! Numbers that values contain where a comparison holds: read behind their key, without the rest of
//! the value.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use memchr::memmem::Finder;

use super::field::{NUMBERED, field_path, plain_text};
use crate::engine::dialect::cast_target;

/// Digits of a number that is read here: all such numbers are exact in each of the engine's types.
const DIGITS_MAX: usize = 15;

/// A number that stands behind the last key of a path in each value for which a comparison of the
/// field with a number holds.
#[derive(Clone, Debug)]
pub(crate) struct ContainedNumber {
    path: Vec<Expr>,
    /// The key between its quotes, as JSON has it.
    key: String,
    plain: Finder<'static>,
    numbered: Finder<'static>,
    number_type: NumberType,
    /// What the number may be, both ends included.
    low: i64,
    high: i64,
}

/// What a text is converted to, as far as errors go: a number that does not fit is looked at by the
/// engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberType {
    low: i64,
    high: i64,
    has_fractions: bool,
}

/// What stands behind a key, as far as it is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing that a comparison holds for: JSON's null, or the key was none.
    Nothing,
    /// A number from the first to the second one.
    Number(i64, i64),
    /// The engine has to look.
    Unknown,
}

impl PartialEq for ContainedNumber {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && (self.low, self.high) == (other.low, other.high)
    }
}

impl Eq for ContainedNumber {}

impl std::fmt::Display for ContainedNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.key)?;
        match (self.low, self.high) {
            (low, i64::MAX) => write!(f, "{low}.."),
            (i64::MIN, high) => write!(f, "..{high}"),
            (low, high) => write!(f, "{low}..{high}"),
        }
    }
}

impl ContainedNumber {
    /// `None` where the filter is of another form, or JSON has short escapes for the key.
    pub(crate) fn of(filter: &Expr) -> Option<Self> {
        let (field, low, high) = match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match literal_of(right) {
                Some(literal) => compared(left, *op, literal)?,
                None => compared(right, op.swap()?, literal_of(left)?)?,
            },
            Expr::Between(Between { expr, negated: false, low, high }) => {
                (&**expr, literal_of(low)?.0, literal_of(high)?.1)
            }
            _ => return None,
        };
        let (path, number_type) = number_field(field)?;
        let Expr::Literal(key, _) = path.last()? else { return None };
        let key = plain_text(key)?;
        let key = format!("\"{key}\"");
        let plain = Finder::new(&key).into_owned();
        let numbered = Finder::new(NUMBERED);
        Some(Self { path: path.to_vec(), key, plain, numbered, number_type, low, high })
    }

    /// Takes in what another comparison of the same field tells, if that is one.
    pub(crate) fn narrow(&mut self, other: &Self) -> bool {
        let is_same = self.path == other.path && self.number_type == other.number_type;
        if is_same {
            self.low = self.low.max(other.low);
            self.high = self.high.min(other.high);
        }
        is_same
    }

    /// Whether the filter can hold for a value that is among these bytes.
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        let mut keys = self.plain.find_iter(bytes);
        keys.any(|at| self.fits(&bytes[at + self.key.len()..]))
            || self.numbered.find(bytes).is_some()
    }

    #[inline]
    fn fits(&self, behind_key: &[u8]) -> bool {
        let of = self.number_type;
        match found(behind_key) {
            Found::Nothing => false,
            Found::Unknown => true,
            Found::Number(low, high) if low < high && !of.has_fractions => true,
            Found::Number(low, high) if low < of.low || high > of.high => true,
            Found::Number(low, high) => low <= self.high && high >= self.low,
        }
    }
}

/// What begins with the colon behind a key.
#[inline]
fn found(bytes: &[u8]) -> Found {
    let Some((b':', rest)) = after_space(bytes) else { return Found::Nothing };
    let Some((first, rest)) = after_space(rest) else { return Found::Nothing };
    let (is_negative, first, rest) = match (first, rest.split_first()) {
        (b'-', Some((first, rest))) => (true, *first, rest),
        _ => (false, first, rest),
    };
    match first {
        b'0'..=b'9' => number(is_negative, first, rest),
        b'n' if !is_negative => Found::Nothing,
        _ => Found::Unknown,
    }
}

#[inline]
fn number(is_negative: bool, first: u8, rest: &[u8]) -> Found {
    let mut whole = i64::from(first - b'0');
    let digits = rest.iter().take_while(|it| it.is_ascii_digit());
    let mut count = 0;
    for digit in digits.take(DIGITS_MAX) {
        whole = whole * 10 + i64::from(digit - b'0');
        count += 1;
    }
    if count == DIGITS_MAX {
        return Found::Unknown;
    }
    let signed = if is_negative { -whole } else { whole };
    let rest = &rest[count..];
    match rest.first() {
        Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') => Found::Number(signed, signed),
        Some(b'.') => {
            let fraction = rest[1..].iter().take_while(|it| it.is_ascii_digit()).count();
            match rest.get(1 + fraction) {
                None | Some(b'e' | b'E') => Found::Unknown,
                _ if is_negative => Found::Number(signed - 1, signed),
                _ => Found::Number(signed, signed + 1),
            }
        }
        _ => Found::Unknown,
    }
}

/// The first byte that is no space, and what is behind it.
#[inline]
fn after_space(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut rest = bytes;
    loop {
        let (first, behind) = rest.split_first()?;
        if !matches!(first, b' ' | b'\t' | b'\n' | b'\r') {
            return Some((*first, behind));
        }
        rest = behind;
    }
}

/// The field that is compared, and between which numbers it is where that holds; each end is a
/// whole number, and the comparison may hold for less.
fn compared(field: &Expr, operator: Operator, around: (i64, i64)) -> Option<Compared<'_>> {
    let (floor, ceiling) = around;
    match operator {
        Operator::Eq => Some((field, floor, ceiling)),
        Operator::Gt | Operator::GtEq => Some((field, floor, i64::MAX)),
        Operator::Lt | Operator::LtEq => Some((field, i64::MIN, ceiling)),
        _ => None,
    }
}

type Compared<'a> = (&'a Expr, i64, i64);

/// The whole numbers around a literal.
fn literal_of(expr: &Expr) -> Option<(i64, i64)> {
    let Expr::Literal(value, _) = expr else { return None };
    let whole = |it: i64| Some((it, it));
    match *value {
        ScalarValue::Int16(Some(it)) => whole(it.into()),
        ScalarValue::Int32(Some(it)) => whole(it.into()),
        ScalarValue::Int64(Some(it)) => whole(it),
        ScalarValue::Decimal128(Some(it), _, scale) => {
            let unit = 10_i128.checked_pow(u32::try_from(scale).ok()?)?;
            let floor = i64::try_from(it.div_euclid(unit)).ok()?;
            let is_whole = it.rem_euclid(unit) == 0;
            Some((floor, floor.checked_add(i64::from(!is_whole))?))
        }
        ScalarValue::Float64(Some(it)) => float_bounds(it),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds are looked at before")]
fn float_bounds(value: f64) -> Option<(i64, i64)> {
    const END: f64 = 1e15;
    (-END..END).contains(&value).then(|| (value.floor() as i64, value.ceil() as i64))
}

/// The path of a field of a record's value that is converted to a number, and what to.
fn number_field(expr: &Expr) -> Option<(&[Expr], NumberType)> {
    let (inner, target) = match expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (&**expr, field.data_type().clone())
        }
        Expr::ScalarFunction(call) => (call.args.first()?, cast_target(&call.func)?),
        _ => return None,
    };
    let number_type = number_type(&target)?;
    match field_path(inner) {
        Some(path) => Some((path, number_type)),
        // Another type for the same number, which holds each that is read here.
        None if number_type.has_fractions || target == DataType::Int64 => number_field(inner),
        None => None,
    }
}

fn number_type(target: &DataType) -> Option<NumberType> {
    let whole = |low, high| Some(NumberType { low, high, has_fractions: false });
    match target {
        DataType::Int16 => whole(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => whole(i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => whole(i64::MIN, i64::MAX),
        DataType::Float64 | DataType::Decimal128(38, _) => {
            Some(NumberType { low: i64::MIN, high: i64::MAX, has_fractions: true })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;
    use crate::engine::json::field;

    fn qty(to: DataType) -> Expr {
        cast(field(col("value"), vec![lit("qty")], false), to)
    }

    fn shown(filter: &Expr) -> Option<String> {
        ContainedNumber::of(filter).map(|it| it.to_string())
    }

    #[test]
    fn comparisons_with_numbers_tell_what_stands_behind_the_key() {
        let whole = || qty(DataType::Int64);
        let decimal = ScalarValue::Decimal128(Some(-15), 38, 1);
        for (filter, expected) in [
            (whole().gt_eq(lit(5_i64)), Some("\"qty\":5..")),
            (lit(5_i64).gt(whole()), Some("\"qty\":..5")),
            (whole().eq(lit(5_i64)), Some("\"qty\":5..5")),
            (whole().between(lit(1_i64), lit(9_i64)), Some("\"qty\":1..9")),
            (qty(DataType::Float64).lt(lit(2.5)), Some("\"qty\":..3")),
            (qty(DataType::Decimal128(38, 10)).gt(lit(decimal)), Some("\"qty\":-2..")),
            (cast(qty(DataType::Int32), DataType::Int64).lt(lit(7_i64)), Some("\"qty\":..7")),
            (cast(whole(), DataType::Int32).lt(lit(7_i32)), None),
            (whole().not_eq(lit(5_i64)), None),
            (whole().not_between(lit(1_i64), lit(9_i64)), None),
            (qty(DataType::Utf8View).gt(lit("5")), None),
            (col("offset").gt(lit(5_i64)), None),
            (
                cast(field(col("value"), vec![lit("a/b")], false), DataType::Int64).lt(lit(1_i64)),
                None,
            ),
        ] {
            assert_eq!(shown(&filter).as_deref(), expected, "{filter}");
        }
    }

    #[test]
    fn values_that_cannot_match_are_told_by_their_bytes() {
        let whole = ContainedNumber::of(&qty(DataType::Int32).gt_eq(lit(100_i32)));
        let fraction = ContainedNumber::of(&qty(DataType::Float64).lt(lit(-1.5)));
        let (whole, fraction) = (whole.expect("a range"), fraction.expect("a range"));
        for (value, of_whole, of_fraction) in [
            (r#"{"qty":100}"#, true, false),
            (r#"{"qty" : 99 }"#, false, false),
            (r#"{"a":"qty","b":7}"#, false, false),
            (r#"{"qty":null}"#, false, false),
            (r#"{"qty":9,"x":{"qty":101}}"#, true, false),
            (r#"{"\u0071ty":1}"#, true, true),
            // What is no number of the type is an error, which the engine tells.
            (r#"{"qty":"7"}"#, true, true),
            (r#"{"qty":true}"#, true, true),
            (r#"{"qty":1.5}"#, true, false),
            (r#"{"qty":-1.25}"#, true, true),
            (r#"{"qty":-0.5}"#, true, true),
            (r#"{"qty":1e3}"#, true, true),
            (r#"{"qty":-1.5e3}"#, true, true),
            (r#"{"qty":-3000000000}"#, true, true),
            (r#"{"qty":1234567890123456}"#, true, true),
            (r#"{"qty":-123456789012345}"#, true, true),
            (r#"{"qty":12"#, true, true),
            (r#"{"qty":-"#, true, true),
            (r#"{"qty""#, false, false),
            ("", false, false),
        ] {
            assert_eq!(whole.may_be_in(value.as_bytes()), of_whole, "{value}");
            assert_eq!(fraction.may_be_in(value.as_bytes()), of_fraction, "{value}");
        }
    }
}
