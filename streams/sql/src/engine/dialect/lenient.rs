//! `coalesce`, `greatest` and `least` with quoted literals, which take the type of the other
//! arguments. The engine finds no common type of text and, for example, timestamp.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

const NAMES: &[&str] = &["coalesce", "greatest", "least"];

/// Makes functions of a session accept texts beside other types. Texts that are no literals are
/// rejected later, when all types are known.
pub(super) fn take_literals(state: &mut SessionState) -> Result<()> {
    for name in NAMES {
        let signature = Signature::user_defined(Volatility::Immutable);
        let function = Lenient { inner: state.udf(name)?, signature };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Lenient {
    /// The engine's function.
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Lenient {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let found = self.inner.coerce_types(types);
        let others: Vec<_> = types.iter().filter(|it| !it.is_string()).cloned().collect();
        if found.is_ok() || others.is_empty() || others.len() == types.len() {
            return found;
        }
        let common = self.inner.coerce_types(&others)?;
        Ok(vec![common[0].clone(); types.len()])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
