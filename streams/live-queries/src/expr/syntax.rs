//! Tree of a compiled expression.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::expr::like::Pattern;
use crate::json::PathId;
use crate::scalar::Value;
use crate::types::Type;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Literal(Value<'static>),
    Partition,
    Offset,
    Time,
    KeyText,
    KeyBytes,
    ValueText,
    ValueBytes,
    /// The record's value, validated as JSON on evaluation.
    ValueJson,
    HeadersJson,
    HeaderText(String),
    /// `->`: the JSON at a path.
    PathJson(PathId),
    /// `->>`: the text of the JSON at a path.
    PathText(PathId),
    /// A grouping key or aggregate.
    Result(usize),
    /// Evaluated on the joined row; NULL if there is none.
    Joined(Box<Expr>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare {
        comparison: Comparison,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// IS NOT DISTINCT FROM.
    Same(Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    /// IS TRUE and IS FALSE.
    IsBool {
        value: bool,
        operand: Box<Expr>,
    },
    InSet {
        operand: Box<Expr>,
        set: Arc<LiteralSet>,
    },
    InList {
        operand: Box<Expr>,
        list: Vec<Expr>,
    },
    Like {
        operand: Box<Expr>,
        pattern: Arc<Pattern>,
    },
    /// LIKE with a pattern that is not a literal.
    LikeMade {
        operand: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
        folds: bool,
    },
    Arithmetic {
        operator: Arithmetic,
        result: Type,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Negate {
        result: Type,
        operand: Box<Expr>,
    },
    Concat(Box<Expr>, Box<Expr>),
    Cast {
        to: Type,
        operand: Box<Expr>,
    },
    /// A cast that results in NULL if it fails.
    CastOrNull {
        to: Type,
        operand: Box<Expr>,
    },
    Case {
        branches: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    Call {
        call: Call,
        arguments: Vec<Expr>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// Functions whose arguments are all evaluated. Most are strict: NULL if any argument is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Abs,
    Ceil,
    Concat,
    DatePart,
    DateTrunc,
    Floor,
    Greatest,
    Least,
    Left,
    Length,
    Lower,
    NullIf,
    OctetLength,
    Position,
    Replace,
    Right,
    Round,
    StartsWith,
    Substring,
    ToTimestamp,
    Trim,
    TrimEnd,
    TrimStart,
    Upper,
}

/// Literals of an IN list, all of one type.
#[derive(Debug, Default)]
pub(crate) struct LiteralSet {
    pub(crate) values: Vec<Value<'static>>,
    /// The list contains NULL, so the result for values not in it is unknown.
    pub(crate) has_null: bool,
    hashes: HashSet<Hashed>,
}

/// A value with equality and hash as for SQL's `=`.
#[derive(Clone, Debug)]
struct Hashed(Value<'static>);

impl Expr {
    /// Returns the direct subexpressions; none for a literal or column.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match self {
            Self::Not(it) | Self::IsNull(it) => vec![it],
            Self::IsBool { operand, .. }
            | Self::InSet { operand, .. }
            | Self::Like { operand, .. }
            | Self::Negate { operand, .. }
            | Self::Cast { operand, .. }
            | Self::CastOrNull { operand, .. } => vec![operand],
            Self::And(operands) | Self::Or(operands) | Self::Coalesce(operands) => {
                operands.iter().collect()
            }
            Self::Call { arguments, .. } => arguments.iter().collect(),
            Self::Compare { left, right, .. }
            | Self::Arithmetic { left, right, .. }
            | Self::Same(left, right)
            | Self::Concat(left, right)
            | Self::LikeMade { operand: left, pattern: right, .. } => vec![left, right],
            Self::InList { operand, list } => std::iter::once(&**operand).chain(list).collect(),
            Self::Case { branches, otherwise } => {
                let branches = branches.iter().flat_map(|(condition, result)| [condition, result]);
                branches.chain(std::iter::once(&**otherwise)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether any subexpression refers to the joined row.
    pub(crate) fn reads_joined(&self) -> bool {
        matches!(self, Self::Joined(_)) || self.children().iter().any(|it| it.reads_joined())
    }

    /// Returns whether all operands are literals.
    pub(crate) fn is_foldable(&self) -> bool {
        let children = self.children();
        !children.is_empty() && children.iter().all(|it| matches!(it, Self::Literal(_)))
    }
}

impl PartialEq for LiteralSet {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values && self.has_null == other.has_null
    }
}

impl LiteralSet {
    pub(crate) fn new(literals: impl Iterator<Item = Value<'static>>) -> Self {
        let mut set = Self::default();
        for literal in literals {
            if literal.is_null() {
                set.has_null = true;
            } else if set.hashes.insert(Hashed(literal.clone())) {
                set.values.push(literal);
            }
        }
        set
    }

    pub(crate) fn contains(&self, value: &Value<'_>) -> bool {
        // Short lists are searched linearly, which avoids a copy of the value for the lookup.
        match self.values.len() {
            ..9 => self.values.iter().any(|it| it.order(value).is_eq()),
            _ => self.hashes.contains(&Hashed(value.clone().into_owned())),
        }
    }
}

impl PartialEq for Hashed {
    fn eq(&self, other: &Self) -> bool {
        self.0.order(&other.0).is_eq()
    }
}

impl Eq for Hashed {}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash_into(state);
    }
}

impl Comparison {
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// Returns the comparison with exchanged operands.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

impl Arithmetic {
    pub(crate) fn symbol(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
            Self::Modulo => '%',
        }
    }
}
