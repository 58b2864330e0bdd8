//! Square roots, powers, logarithms and variances of numerics, with the same number of digits as in
//! PostgreSQL. Numbers are big integers in units of the last digit. Floats are used only to choose
//! the number of digits, as in PostgreSQL.

use std::f64::consts::LN_10;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, i256};
use num_bigint::{BigInt, Sign};

use crate::error::{SqlError, SqlState};
use crate::wire::decimal_text;

/// Scale of results. Results with more fractional digits are out of range.
pub(in crate::engine) const RESULT_SCALE: u32 = 30;

/// Maximum number of integer digits of a result.
const RESULT_WHOLE_DIGITS: u32 = 46;

/// Scale of numerics parsed from text, whose original scale is unknown.
const TEXT_SCALE: u32 = 10;

/// Minimum number of significant digits of a result.
const DIGITS_MIN: i64 = 16;

/// Decimal digits in one of PostgreSQL's base-10000 digits.
const GROUP_DIGITS: i64 = 4;

/// Fractional digits in the computation of logarithms and exponentials.
const WORK_SCALE: u32 = 140;

/// Maximum digits of a power computed by multiplication. Larger ones are computed by logarithms.
const MULTIPLIED_DIGITS_MAX: usize = 4096;

/// Number of halvings of an exponent before its series.
const HALVINGS: u32 = 12;

/// Logarithm of e to base 10, with PostgreSQL's number of digits.
#[expect(clippy::approx_constant, reason = "it decides how many digits results have there")]
const LOG10_OF_E: f64 = 0.434_294_481_903_252;

/// A numeric: an integer in units of the last digit, and the number of fractional digits.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Numeric {
    pub(in crate::engine) units: BigInt,
    pub(in crate::engine) scale: u32,
}

/// Leading base-10000 digits of a numeric, and the exponent of the first (0: units).
struct Groups {
    weight: i64,
    first: u32,
    /// `None` if there is only one.
    second: Option<u32>,
}

impl Numeric {
    fn one() -> Self {
        Self { units: BigInt::from(1), scale: 0 }
    }

    fn is_zero(&self) -> bool {
        self.units.sign() == Sign::NoSign
    }

    fn is_negative(&self) -> bool {
        self.units.sign() == Sign::Minus
    }

    /// Returns the units at a larger or equal scale.
    pub(super) fn at(&self, scale: u32) -> BigInt {
        assert!(scale >= self.scale, "digits are not cut off");
        &self.units * ten(scale - self.scale)
    }

    fn groups(&self) -> Groups {
        let digits = self.units.magnitude().to_string();
        let digits = digits.trim_end_matches('0');
        let count = i64::try_from(self.units.magnitude().to_string().len()).unwrap_or(0);
        let exponent = count - 1 - i64::from(self.scale);
        let weight = exponent.div_euclid(GROUP_DIGITS);
        let taken = usize::try_from(exponent - weight * GROUP_DIGITS + 1).unwrap_or(1);
        let padded = format!("{digits:0<width$}", width = taken + 4);
        let group = |text: &str| text.parse().unwrap_or(0);
        let second = (digits.len() > taken).then(|| group(&padded[taken..taken + 4]));
        Groups { weight, first: group(&padded[..taken]), second }
    }

    /// Returns the text with a number of fractional digits, which is not smaller than that of the
    /// digits that are not zero.
    pub(super) fn text(&self, scale: u32) -> String {
        let units = at_scale(&self.units, self.scale, scale);
        decimal_text(&units.to_string(), i8::try_from(scale).unwrap_or(i8::MAX))
    }

    /// Returns the number of fractional digits without trailing zeros.
    pub(super) fn shown_scale(&self) -> u32 {
        let digits = self.units.magnitude().to_string();
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        match self.is_zero() {
            true => 0,
            false => self.scale.saturating_sub(u32::try_from(zeros).unwrap_or(0)),
        }
    }

    fn to_float(&self) -> f64 {
        format!("{}e-{}", self.units, self.scale).parse().unwrap_or(f64::NAN)
    }

    /// Returns the value if it is an integer.
    fn whole(&self) -> Option<BigInt> {
        let unit = ten(self.scale);
        let whole = &self.units / &unit;
        (&whole * unit == self.units).then_some(whole)
    }

    /// Returns the value in units of the result type's last digit.
    pub(in crate::engine) fn result(&self) -> Result<i256, SqlError> {
        let units = match self.scale <= RESULT_SCALE {
            true => self.at(RESULT_SCALE),
            false => return Err(too_long()),
        };
        match units.magnitude() < ten(RESULT_SCALE + RESULT_WHOLE_DIGITS).magnitude() {
            true => i256::from_string(&units.to_string()).ok_or_else(too_long),
            false => Err(too_long()),
        }
    }
}

/// Type of results.
pub(in crate::engine) const fn result_type() -> DataType {
    DataType::Decimal256(76, 30)
}

/// Returns whether a column of this type may have had more or fewer digits.
pub(super) fn is_unknown(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(element) => is_unknown(element.data_type()),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            *precision >= DECIMAL128_MAX_PRECISION && *scale > 0
        }
        _ => false,
    }
}

fn ten(power: u32) -> BigInt {
    BigInt::from(10).pow(power)
}

fn too_long() -> SqlError {
    SqlError::unsupported("numeric with so many digits is not supported")
        .with_hint("Cast to double precision.")
}

/// Error: the result depends on trailing zeros that are not stored.
fn of_unknown_scale() -> SqlError {
    let what = "this function is not supported for a numeric of unknown scale";
    SqlError::unsupported(what)
        .with_hint("Cast it to double precision, or to numeric with a precision and a scale.")
}

/// Returns the scale of a result with at least `at_least` fractional digits, and at least those of
/// its operands.
fn scale_beside(at_least: i64, operands: &[&Numeric]) -> Result<u32, SqlError> {
    let shown = operands.iter().map(|it| it.shown_scale()).max().unwrap_or(0);
    let written = operands.iter().map(|it| match it.scale {
        TEXT_SCALE => it.shown_scale(),
        scale => scale,
    });
    scale_of(at_least, shown, written.max().unwrap_or(0))
}

/// Same as [`scale_beside`], for operands with `shown` fractional digits, and `written` ones
/// including trailing zeros.
fn scale_of(at_least: i64, shown: u32, written: u32) -> Result<u32, SqlError> {
    let scale = at_least.max(i64::from(shown)).max(0);
    match i64::from(written) <= scale {
        true => u32::try_from(scale).ok().filter(|it| *it <= RESULT_SCALE).ok_or_else(too_long),
        false => Err(of_unknown_scale()),
    }
}

/// Divides and rounds half away from zero.
fn rounded(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let half = BigInt::from(divisor.magnitude().clone());
    let twice = BigInt::from(dividend.magnitude().clone()) * 2 + &half;
    let magnitude = twice / (half * 2);
    match dividend.sign() == divisor.sign() || dividend.sign() == Sign::NoSign {
        true => magnitude,
        false => -magnitude,
    }
}

fn at_scale(units: &BigInt, from: u32, to: u32) -> BigInt {
    match to >= from {
        true => units * ten(to - from),
        false => rounded(units, &ten(from - to)),
    }
}

fn root_at(number: &Numeric, scale: u32) -> BigInt {
    let work = (scale + 1).max(number.scale.div_ceil(2));
    at_scale(&number.at(work * 2).sqrt(), work, scale)
}

pub(super) fn root(number: &Numeric) -> Result<Numeric, SqlError> {
    if number.is_negative() {
        let what = "cannot take square root of a negative number";
        return Err(SqlError::new(SqlState::POWER, what));
    }
    let weight = if number.is_zero() { 0 } else { number.groups().weight };
    let scale = scale_beside(DIGITS_MIN - (weight * GROUP_DIGITS / 2 + 1), &[number])?;
    Ok(Numeric { units: root_at(number, scale), scale })
}

/// Estimates the number of integer digits of a logarithm, as PostgreSQL does.
#[expect(clippy::cast_possible_truncation, reason = "PostgreSQL cuts off too")]
fn ln_digits(number: &Numeric) -> i64 {
    let one = Numeric::one().at(number.scale);
    let near: BigInt = &one / 10;
    let apart = &number.units - &one;
    if apart.magnitude() <= near.magnitude() && number.scale > 0 {
        let apart = Numeric { units: apart, scale: number.scale };
        if apart.is_zero() {
            return 0;
        }
        let groups = apart.groups();
        return groups.weight * GROUP_DIGITS + f64::from(groups.first).log10() as i64;
    }
    if number.units == one {
        return 0;
    }
    let groups = number.groups();
    let (digits, weight) = match groups.second {
        None => (f64::from(groups.first), groups.weight * GROUP_DIGITS),
        Some(second) => {
            let digits = f64::from(groups.first) * 10_000.0 + f64::from(second);
            (digits, (groups.weight - 1) * GROUP_DIGITS)
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "there are few digits")]
    let about = digits.ln() + weight as f64 * LN_10;
    about.abs().log10() as i64
}

/// Returns the natural logarithm of a positive number, in units of [`WORK_SCALE`].
fn ln_at_work(number: &Numeric) -> BigInt {
    let count = u32::try_from(number.units.magnitude().to_string().len()).unwrap_or(u32::MAX);
    // Normalized to one integer digit.
    let mantissa = Numeric { units: number.units.clone(), scale: count - 1 };
    let exponent = i64::from(count) - 1 - i64::from(number.scale);
    let of_ten = match exponent {
        0 => BigInt::from(0),
        _ => ln_of_mantissa(&Numeric { units: BigInt::from(10), scale: 0 }) * exponent,
    };
    ln_of_mantissa(&mantissa) + of_ten
}

/// Returns the natural logarithm of a number from 1 to 10.
fn ln_of_mantissa(number: &Numeric) -> BigInt {
    let unit = ten(WORK_SCALE);
    let bound = &unit + &unit / 20;
    let (mut root, mut halved) = (number.at(WORK_SCALE), 0);
    while root > bound {
        root = (root * &unit).sqrt();
        halved += 1;
    }
    let ratio = (&root - &unit) * &unit / (&root + &unit);
    let square = &ratio * &ratio / &unit;
    let (mut sum, mut power) = (BigInt::from(0), ratio);
    let mut divisor = 1;
    while power.sign() != Sign::NoSign {
        sum += &power / divisor;
        power = power * &square / &unit;
        divisor += 2;
    }
    sum << (halved + 1)
}

/// Returns e to a power, both in units of [`WORK_SCALE`].
fn exp_at_work(power: &BigInt) -> BigInt {
    let unit = ten(WORK_SCALE);
    let part = power >> HALVINGS;
    let (mut sum, mut term) = (BigInt::from(0), unit.clone());
    let mut count = 1;
    while term.sign() != Sign::NoSign && count < i32::MAX {
        sum += &term;
        term = rounded(&(term * &part), &(&unit * count));
        count += 1;
    }
    (0..HALVINGS).fold(sum, |it, _| &it * &it / &unit)
}

fn check_logarithm(number: &Numeric) -> Result<(), SqlError> {
    let what = match number.units.sign() {
        Sign::Plus => return Ok(()),
        Sign::NoSign => "cannot take logarithm of zero",
        Sign::Minus => "cannot take logarithm of a negative number",
    };
    Err(SqlError::new(SqlState::LOGARITHM, what))
}

fn check_length(number: &Numeric) -> Result<(), SqlError> {
    match number.scale <= WORK_SCALE / 2 {
        true => Ok(()),
        false => Err(too_long()),
    }
}

pub(super) fn ln(number: &Numeric) -> Result<Numeric, SqlError> {
    check_logarithm(number)?;
    check_length(number)?;
    let scale = scale_beside(DIGITS_MIN - ln_digits(number), &[number])?;
    Ok(Numeric { units: at_scale(&ln_at_work(number), WORK_SCALE, scale), scale })
}

pub(super) fn log(base: &Numeric, number: &Numeric) -> Result<Numeric, SqlError> {
    check_logarithm(base)?;
    check_logarithm(number)?;
    check_length(base)?;
    check_length(number)?;
    let digits = ln_digits(number) - ln_digits(base);
    let of_base = ln_at_work(base);
    if of_base.sign() == Sign::NoSign {
        return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    let scale = scale_beside(DIGITS_MIN - digits, &[base, number])?;
    // As in PostgreSQL, both have some more digits than the result, so that integer results are
    // exact.
    let units = rounded(&(ln_at_work(number) * ten(scale + 20)), &of_base);
    let units = at_scale(&units, scale + 20, scale);
    Ok(Numeric { units, scale })
}

pub(super) fn exp(power: &Numeric) -> Result<Numeric, SqlError> {
    check_length(power)?;
    let digits = power.to_float() * LOG10_OF_E;
    exp_of(&power.at(WORK_SCALE), digits, &[power])
}

/// Returns e to a power in units of [`WORK_SCALE`]. `digits` estimates the integer digits of the
/// result.
fn exp_of(power: &BigInt, digits: f64, operands: &[&Numeric]) -> Result<Numeric, SqlError> {
    if digits.is_nan() || digits.abs() > f64::from(RESULT_WHOLE_DIGITS) {
        return Err(too_long());
    }
    #[expect(clippy::cast_possible_truncation, reason = "PostgreSQL cuts off too")]
    let scale = scale_beside(DIGITS_MIN - digits as i64, operands)?;
    Ok(Numeric { units: at_scale(&exp_at_work(power), WORK_SCALE, scale), scale })
}

pub(super) fn power(base: &Numeric, exponent: &Numeric) -> Result<Numeric, SqlError> {
    let error = |what: &str| Err(SqlError::new(SqlState::POWER, what));
    check_length(base)?;
    check_length(exponent)?;
    if base.is_zero() && exponent.is_negative() {
        return error("zero raised to a negative power is undefined");
    }
    if let Some(whole) = exponent.whole() {
        return match i32::try_from(&whole) {
            Ok(whole) => whole_power(base, whole),
            Err(_) => Err(too_long()),
        };
    }
    if base.is_zero() {
        return Ok(Numeric { units: BigInt::from(0), scale: 16 });
    }
    if base.is_negative() {
        return error("a negative number raised to a non-integer power yields a complex result");
    }
    // An estimate with eight digits determines the scale of the result.
    let of_base = ln_at_work(base);
    let rough = u32::try_from((8 - ln_digits(base)).max(0)).map_err(|_| too_long())?;
    let rough_ln = at_scale(&of_base, WORK_SCALE, rough);
    let rough_power = at_scale(&(rough_ln * &exponent.units), rough + exponent.scale, rough);
    let digits = Numeric { units: rough_power, scale: rough }.to_float() * LOG10_OF_E;
    let power = rounded(&(of_base * &exponent.units), &ten(exponent.scale));
    exp_of(&power, digits, &[base, exponent])
}

fn whole_power(base: &Numeric, exponent: i32) -> Result<Numeric, SqlError> {
    let scale = scale_beside(DIGITS_MIN, &[base])?;
    let count = exponent.unsigned_abs();
    if exponent == 0 {
        return Ok(Numeric { units: ten(scale), scale });
    }
    if base.is_zero() {
        return Ok(Numeric { units: BigInt::from(0), scale });
    }
    let length = base.units.magnitude().to_string().len();
    if length.saturating_mul(count as usize) <= MULTIPLIED_DIGITS_MAX {
        let (power, unit) = (base.units.pow(count), ten(base.scale * count));
        let units = match exponent > 0 {
            true => rounded(&(power * ten(scale)), &unit),
            false => rounded(&(unit * ten(scale)), &power),
        };
        return Ok(Numeric { units, scale });
    }
    let magnitude = BigInt::from(base.units.magnitude().clone());
    let magnitude = Numeric { units: magnitude, scale: base.scale };
    let power = ln_at_work(&magnitude) * exponent;
    let digits = at_scale(&power, WORK_SCALE, 8);
    let digits = Numeric { units: digits, scale: 8 }.to_float() * LOG10_OF_E;
    if digits > f64::from(RESULT_WHOLE_DIGITS) {
        return Err(too_long());
    }
    let units = match digits < -f64::from(RESULT_SCALE + 2) {
        true => BigInt::from(0),
        false => at_scale(&exp_at_work(&power), WORK_SCALE, scale),
    };
    let is_negative = base.is_negative() && count % 2 == 1;
    Ok(Numeric { units: if is_negative { -units } else { units }, scale })
}

/// Measure of dispersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Spread {
    VariancePopulation,
    VarianceSample,
    DeviationPopulation,
    DeviationSample,
}

/// Count, sum, and sum of squares of values.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Sums {
    pub(in crate::engine) count: i64,
    pub(in crate::engine) sum: BigInt,
    pub(in crate::engine) squares: BigInt,
}

/// Returns a variance or standard deviation of values with `scale` fractional digits, or `None` for
/// too few values.
pub(in crate::engine) fn spread(
    of: Spread,
    sums: &Sums,
    scale: u32,
) -> Result<Option<Numeric>, SqlError> {
    let is_sample = matches!(of, Spread::VarianceSample | Spread::DeviationSample);
    if sums.count < if is_sample { 2 } else { 1 } {
        return Ok(None);
    }
    let count = BigInt::from(sums.count);
    let numerator = &count * &sums.squares - &sums.sum * &sums.sum;
    if numerator.sign() != Sign::Plus {
        return Ok(Some(Numeric { units: BigInt::from(0), scale: 0 }));
    }
    let divisor = &count * if is_sample { &count - 1 } else { count.clone() };
    let numerator = Numeric { units: numerator, scale: scale * 2 };
    let left = numerator.groups();
    let right = Numeric { units: divisor.clone(), scale: 0 }.groups();
    let weight = left.weight - right.weight - i64::from(left.first <= right.first);
    let shown = numerator.shown_scale();
    let written = if scale == TEXT_SCALE { shown } else { scale * 2 };
    let result_scale = scale_of(DIGITS_MIN - weight * GROUP_DIGITS, shown, written)?;
    let variance = rounded(&(&numerator.units * ten(result_scale)), &(divisor * ten(scale * 2)));
    let variance = Numeric { units: variance, scale: result_scale };
    Ok(Some(match of {
        Spread::VariancePopulation | Spread::VarianceSample => variance,
        Spread::DeviationPopulation | Spread::DeviationSample => {
            Numeric { units: root_at(&variance, result_scale), scale: result_scale }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Numeric {
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |it| (-1, it));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let units = format!("{whole}{fraction}").parse::<BigInt>().expect("digits") * sign;
        Numeric { units, scale: u32::try_from(fraction.len()).expect("few digits") }
    }

    #[track_caller]
    fn check(found: Result<Numeric, SqlError>, expected: &str) {
        let (found, expected) = (found.expect("a number"), number(expected));
        assert_eq!((found.units, found.scale), (expected.units, expected.scale));
    }

    /// Expected values are from PostgreSQL 15, to the last digit.
    #[test]
    fn results_have_the_digits_of_postgresql() {
        check(root(&number("2.0")), "1.414213562373095");
        check(root(&number("0.0000012")), "0.0010954451150103322");
        check(root(&number("123456789012.5")), "351364.18288223403");
        check(exp(&number("1.0")), "2.7182818284590452");
        check(exp(&number("-20.5")), "0.000000001250152866386743");
        check(ln(&number("10.0")), "2.3025850929940457");
        check(ln(&number("0.95")), "-0.051293294387550533");
        check(log(&number("0.5"), &number("3")), "-1.5849625007211562");
        check(log(&number("10"), &number("100.0")), "2.0000000000000000");
        check(power(&number("2"), &number("0.5")), "1.4142135623730950");
        check(power(&number("100"), &number("0.5")), "10.000000000000000");
        check(power(&number("1.5"), &number("-3")), "0.2962962962962963");
        check(power(&number("0.1"), &number("20")), "0.0000000000000000");
    }

    #[test]
    fn digits_that_depend_on_zeros_that_are_not_known_are_refused() {
        let average = Numeric { units: BigInt::from(2) * ten(30), scale: 30 };
        let error = root(&average).expect_err("how many zeros it has is not known");
        assert_eq!(error.state, SqlState::NOT_SUPPORTED);
    }

    #[test]
    fn variances_are_of_exact_sums() {
        let of = |spread_of, values: &[i64], scale| {
            let sum = values.iter().sum::<i64>().into();
            let squares = values.iter().map(|it| it * it).sum::<i64>().into();
            let sums = Sums { count: i64::try_from(values.len()).expect("few"), sum, squares };
            spread(spread_of, &sums, scale).map(Option::unwrap_or_default)
        };
        check(of(Spread::VarianceSample, &[1, 2, 4], 0), "2.3333333333333333");
        check(of(Spread::DeviationSample, &[1, 2, 4], 0), "1.5275252316519467");
        check(of(Spread::VariancePopulation, &[15, 25, 40], 1), "1.05555555555555555556");
        check(of(Spread::DeviationPopulation, &[15, 25, 40], 1), "1.02740233382816274171");
        let one = Sums { count: 1, ..Sums::default() };
        assert!(spread(Spread::VarianceSample, &one, 0).expect("no error").is_none());
    }
}
