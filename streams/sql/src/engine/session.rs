//! A connection's interface to the engine: plans statements and runs plans.

use std::sync::Arc;

use access::owner_of;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::config::Dialect;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::execution::context::{SessionConfig, SessionState};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, Statement};
use futures::{StreamExt, stream};
use shares::{Limit, Owner, Share};

use super::catalog::Catalog;
use super::empty_groups::{FiltersAbove, MOVES_FILTERS};
use super::giving_way::GiveWay;
use super::join_keys::NameJoinKeys;
use super::memory::{CallMemory, QueryMemory, take_for_statement};
use super::names::{DATABASE, SCHEMA};
use super::null_keys::{FINDS_KEYS, SpellNullKeys};
use super::pg_catalog::{self, Viewer};
use super::pins::Pins;
use super::planners::{Look, Looking, Planner, Planners};
use super::point_read::PointRead;
use super::sequence::KeepSequence;
use super::windows::CountWindows;
use super::workers::Workers;
use super::{dialect, functions, growing, json, ordered, percentiles, spreads, sums};
use crate::error::SqlError;
use crate::panics::contain_tasks;
use crate::settings::Limits;
use crate::wire::{json_field, jsonb_field};

/// Prefix of the names of rules that push filters down between physical operators.
const FILTER_PUSHDOWN: &str = "FilterPushdown";

/// Engine shared by all connections.
pub(crate) struct Engine {
    base: SessionState,
    memory: Arc<Limit>,
    query_bytes_max: usize,
    planners: Arc<Planners>,
    workers: Workers,
    unknown: dialect::Unknown,
}

impl Engine {
    pub(crate) fn new(limits: &Limits) -> Result<Self, SqlError> {
        contain_tasks();
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(DATABASE, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_target_partitions(limits.query_threads.max(1));
        let options = config.options_mut();
        options.sql_parser.dialect = Dialect::PostgreSQL;
        options.sql_parser.parse_float_as_decimal = true;
        options.sql_parser.enable_subquery_sort_elimination = false;
        options.execution.time_zone = Some("UTC".to_owned());
        // The engine's plan declares IS NOT TRUE and similar tests as nullable, while the
        // expression is not.
        options.execution.skip_physical_aggregate_schema_check = true;
        let mut base = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_type_planner(Arc::new(Types))
            .with_relation_planners(vec![Arc::new(dialect::TypedTables)])
            .with_analyzer_rules(analyzer_rules())
            .with_optimizer_rules(optimizer_rules())
            .with_physical_optimizer_rules(physical_rules())
            .build();
        let unknown = dialect::Unknown::of(&base);
        growing::bound(&mut base)?;
        dialect::check(&mut base)?;
        spreads::keep_numerics(&mut base)?;
        ordered::sort_apart(&mut base)?;
        percentiles::compute_exactly(&mut base)?;
        let mut planners: Vec<_> = base.expr_planners().to_vec();
        // Before the engine's planners, which would allow comparing texts with numbers.
        planners.insert(0, Arc::new(json::Operators));
        planners.insert(1, Arc::new(dialect::Operators));
        planners.insert(2, Arc::new(growing::Operators::new(&base)?));
        planners.insert(3, Arc::new(dialect::NameCasts));
        planners.insert(0, Arc::new(dialect::KnownOperators));
        planners.insert(0, Arc::new(dialect::QuotedNumbers));
        planners.insert(0, Arc::new(dialect::QuotedTimes));
        planners.insert(0, Arc::new(dialect::Integers));
        planners.insert(0, Arc::new(Look));
        base = SessionStateBuilder::new_from_existing(base).with_expr_planners(planners).build();
        // Otherwise the engine's versions remain under their aliases.
        for function in dialect::functions() {
            base.deregister_udf(function.name())?;
        }
        for function in json::functions().into_iter().chain(dialect::functions()) {
            register(&mut base, function);
        }
        for sum in sums::sums() {
            base.register_udaf(Arc::new(sum))?;
        }
        let memory = Limit::new(limits.total_bytes);
        let planners = Arc::new(Planners::new(limits.query_threads));
        let workers = Workers::new(limits.query_threads.max(1))?;
        let query_bytes_max = limits.query_bytes;
        Ok(Self { base, memory, query_bytes_max, planners, workers, unknown })
    }

    /// Returns the memory used by all running queries.
    pub(crate) fn memory_used(&self) -> usize {
        self.memory.taken()
    }

    /// Creates the environment of a query, less `held_bytes` of its memory limit that the prepared
    /// statement holds.
    fn runtime(&self, owner: Owner, held_bytes: usize) -> Result<Arc<RuntimeEnv>, SqlError> {
        let limit = self.query_bytes_max.saturating_sub(held_bytes);
        let memory = QueryMemory::new(&self.memory, owner, limit);
        let no_disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(memory));
        Ok(builder.with_disk_manager_builder(no_disk).build_arc()?)
    }
}

fn register(state: &mut SessionState, function: Arc<ScalarUDF>) {
    state.register_udf(function).expect("a function can be registered under its name");
}

/// The engine's analyzer rules, with type coercion replaced.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let rule = |it: Arc<dyn AnalyzerRule + Send + Sync>| match it.name() == dialect::Coercion.name()
    {
        true => Arc::new(dialect::Coercion) as _,
        false => it,
    };
    let rules = Analyzer::new().rules.into_iter().map(rule);
    let rules = rules.chain([Arc::new(dialect::ShowScales) as _]);
    rules.map(|it| Arc::new(Looking(it)) as _).collect()
}

/// The engine's optimizer rules and this crate's.
fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let rule = |it: Arc<dyn OptimizerRule + Send + Sync>| match it.name() == MOVES_FILTERS {
        true => Arc::new(FiltersAbove(it)) as _,
        false => it,
    };
    let mut rules: Vec<_> = Optimizer::new().rules.into_iter().map(rule).collect();
    let at = rules.iter().position(|it| it.name() == FINDS_KEYS).unwrap_or(rules.len());
    rules.insert(at, Arc::new(SpellNullKeys));
    rules.push(Arc::new(dialect::Guards));
    rules.push(Arc::new(NameJoinKeys));
    rules.into_iter().map(|it| Arc::new(Looking(it)) as _).collect()
}

/// The engine's physical rules and this crate's, without filter pushdown between physical
/// operators. That matches columns by name, and would pick the wrong one if a join has two of a
/// name. Scans of topics do not accept filters at that stage.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let engine_rules = PhysicalOptimizer::new().rules.into_iter();
    let mut rules: Vec<_> =
        engine_rules.filter(|it| !it.name().starts_with(FILTER_PUSHDOWN)).collect();
    rules.push(Arc::new(KeepSequence));
    rules.push(Arc::new(GiveWay));
    rules.push(Arc::new(CountWindows));
    rules.into_iter().map(|it| Arc::new(Looking(it)) as _).collect()
}

/// Types of PostgreSQL that the engine has under other names.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(
        &self,
        sql_type: &SqlType,
    ) -> datafusion::common::Result<Option<datafusion::arrow::datatypes::FieldRef>> {
        let text = |name: &str| Ok(Some(Arc::new(Field::new(name, DataType::Utf8View, true))));
        match sql_type {
            SqlType::Uuid => text("uuid"),
            SqlType::JSON => Ok(Some(Arc::new(json_field("json", DataType::Utf8View)))),
            SqlType::JSONB => Ok(Some(Arc::new(jsonb_field("jsonb", DataType::Utf8View)))),
            SqlType::Numeric(info) | SqlType::Decimal(info) | SqlType::Dec(info) => {
                let (precision, scale) = match info {
                    ExactNumberInfo::None => return Ok(None),
                    ExactNumberInfo::Precision(precision) => (*precision, 0),
                    ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
                };
                let (Ok(precision), Ok(scale)) = (u8::try_from(precision), i8::try_from(scale))
                else {
                    return Ok(None);
                };
                let is_one = (1..=DECIMAL128_MAX_PRECISION).contains(&precision)
                    && (0..=precision.cast_signed()).contains(&scale);
                let numeric = DataType::Decimal128(precision, scale);
                Ok(is_one.then(|| Arc::new(Field::new(dialect::GIVEN, numeric, true))))
            }
            SqlType::Custom(name, _) => {
                let name = name.to_string().to_ascii_lowercase();
                match name.strip_prefix("pg_catalog.").unwrap_or(&name) {
                    "name" => text("text"),
                    "oid" => Ok(Some(Arc::new(Field::new("oid", DataType::UInt32, true)))),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }
}

/// Session of one connection.
pub(crate) struct Session {
    engine: Arc<Engine>,
    owner: Owner,
    state: Arc<SessionState>,
    planner: Planner,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, viewer: &Arc<Viewer>) -> Self {
        let catalogs = MemoryCatalogProviderList::new();
        let catalog = Catalog::new(viewer);
        catalogs.register_catalog(DATABASE.to_owned(), Arc::new(catalog));
        let mut state = SessionStateBuilder::new_from_existing(engine.base.clone())
            .with_catalog_list(Arc::new(catalogs))
            .build();
        let own = functions::functions(&viewer.client);
        for function in own.into_iter().chain(pg_catalog::functions(viewer)) {
            register(&mut state, function);
        }
        let planner = engine.planners.of(&viewer.client.principal);
        let owner = owner_of(&viewer.client.principal, viewer.client.address.ip());
        Self { engine, owner, state: Arc::new(state), planner }
    }

    /// Returns the planner, which parses statements too.
    pub(crate) fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns the result columns of a plan, with their types at execution.
    pub(crate) async fn columns(
        &self,
        plan: LogicalPlan,
        parameters: Vec<DataType>,
    ) -> Result<SchemaRef, SqlError> {
        let state = Arc::clone(&self.state);
        let work = async move || {
            let values = parameters.iter().map(ScalarValue::try_from);
            let plan = with_values(plan, values.collect::<Result<Vec<_>, _>>()?)?;
            let analyzer = state.analyzer();
            let plan = analyzer.execute_and_check(plan, state.config_options(), |_, _| {})?;
            Ok(Arc::clone(plan.schema().inner()))
        };
        self.planner.run_future(work).await
    }

    /// Plans a query whose rows are sent to the client. Also returns a fast path if it is a point
    /// read.
    pub(crate) async fn plan_for_client(
        &self,
        query: Box<Statement>,
    ) -> Result<(LogicalPlan, Option<PointRead>), SqlError> {
        let (plan, point_read) = self.plan(query).await?;
        Ok((dialect::for_clients(plan), point_read))
    }

    /// Plans a query: resolves its names and reads no data. Also returns a fast path if the query
    /// is a point read.
    pub(crate) async fn plan(
        &self,
        mut query: Box<Statement>,
    ) -> Result<(LogicalPlan, Option<PointRead>), SqlError> {
        let (state, engine) = (Arc::clone(&self.state), Arc::clone(&self.engine));
        let work = async move || {
            dialect::check_bounds(&query)?;
            dialect::check_forms(&query)?;
            pg_catalog::rewrite(&mut query);
            let columns = engine.unknown.check(&query)?;
            let rows = dialect::names_of_rows(&query);
            dialect::adapt(&mut query)?;
            let statement = EngineStatement::Statement(query);
            let plan = state.statement_to_plan(statement).await;
            let plan = plan.map_err(|error| dialect::of_row(SqlError::from(error), &rows))?;
            if columns != dialect::Columns::Named {
                dialect::check_wild_joins(&plan, columns)?;
            }
            let plan = dialect::with_parameter_types(dialect::with_array_parameters(plan)?)?;
            let plan = dialect::with_typed_columns(plan)?;
            let plan = dialect::with_sorted_inputs(plan)?;
            let plan = dialect::with_exact_relations(plan)?;
            let point_read = PointRead::of(&plan, &state);
            Ok((plan, point_read))
        };
        self.planner.run_future(work).await
    }

    /// Reserves memory for a statement of `word_count` words, before it is parsed.
    pub(crate) fn take_memory(&self, word_count: usize) -> Result<Share, SqlError> {
        let (total, limit) = (&self.engine.memory, self.engine.query_bytes_max);
        take_for_statement(total, self.owner, word_count, limit).map_err(|error| {
            SqlError::from(error)
                .with_hint("Pass a long list as an array parameter, and insert rows with COPY.")
        })
    }

    /// Runs a plan with its parameter values, `$1` first. The plan comes with the bytes that its
    /// statement holds.
    pub(crate) async fn run(
        &self,
        plan: (LogicalPlan, usize),
        parameters: Vec<ScalarValue>,
    ) -> Result<SendableRecordBatchStream, SqlError> {
        let (plan, context) = self.physical(plan, parameters).await?;
        self.engine.workers.start(plan, context)
    }

    /// Returns the plan as text, one line per row. With `analyze` it is run first, and includes
    /// metrics.
    pub(crate) async fn explain(
        &self,
        plan: (LogicalPlan, usize),
        parameters: Vec<ScalarValue>,
        analyze: Analyze,
    ) -> Result<SendableRecordBatchStream, SqlError> {
        let (plan, context) = self.physical(plan, parameters).await?;
        let text = match analyze {
            Analyze::No => DisplayableExecutionPlan::new(&*plan).indent(false).to_string(),
            Analyze::Yes => {
                let mut rows = self.engine.workers.start(Arc::clone(&plan), context)?;
                while let Some(batch) = rows.next().await {
                    batch?;
                }
                DisplayableExecutionPlan::with_metrics(&*plan).indent(false).to_string()
            }
        };
        text_rows(&["QUERY PLAN"], text.lines().map(|it| vec![dialect::shown(it)]).collect())
    }

    async fn physical(
        &self,
        (plan, held_bytes): (LogicalPlan, usize),
        parameters: Vec<ScalarValue>,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>), SqlError> {
        let (state, runtime) =
            (Arc::clone(&self.state), self.engine.runtime(self.owner, held_bytes)?);
        let work = async move || {
            let plan = with_values(plan, parameters)?;
            let mut state = SessionState::clone(&state);
            // Sets now() for the statement.
            state.mark_start_execution();
            state.config_mut().set_extension(Arc::new(Pins::default()));
            let mut again = state.clone();
            let mut physical = plan_by(&mut state, &plan, &runtime).await;
            if physical.as_ref().is_err_and(SqlError::is_of_planner) {
                // Extracting JSON fields at the scans can produce two columns of the same name
                // above an outer join.
                let optimizer = &mut again.config_mut().options_mut().optimizer;
                optimizer.enable_leaf_expression_pushdown = false;
                physical = plan_by(&mut again, &plan, &runtime).await;
                state = again;
            }
            let physical = physical.map_err(SqlError::of_planning)?;
            let context = TaskContext::from(&state).with_runtime(runtime);
            Ok((physical, Arc::new(context)))
        };
        self.planner.run_future(work).await
    }
}

async fn plan_by(
    state: &mut SessionState,
    plan: &LogicalPlan,
    runtime: &RuntimeEnv,
) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
    let plan = state.optimize(plan)?;
    // From here on function results are held by the query: the next step creates the rows of
    // VALUES.
    let calls = CallMemory::new(Arc::clone(&runtime.memory_pool));
    state.config_mut().options_mut().extensions.insert(calls);
    let options = Arc::clone(state.config_options());
    state.execution_props_mut().config_options = Some(options);
    Ok(state.query_planner().create_physical_plan(&plan, state).await?)
}

fn with_values(plan: LogicalPlan, parameters: Vec<ScalarValue>) -> Result<LogicalPlan, SqlError> {
    Ok(match parameters.is_empty() {
        true => plan,
        false => plan.with_param_values(ParamValues::from(parameters))?,
    })
}

/// Mode of EXPLAIN: with or without running the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Analyze {
    No,
    Yes,
}

/// Creates rows of texts in columns of these names.
pub(crate) fn text_rows(
    names: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<SendableRecordBatchStream, SqlError> {
    let schema = text_schema(names);
    let columns = (0..names.len()).map(|column| {
        let texts = rows.iter().map(|row| row.get(column));
        Arc::new(StringArray::from_iter(texts)) as ArrayRef
    });
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect())
        .map_err(datafusion::common::DataFusionError::from)?;
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter([Ok(batch)]))))
}

pub(crate) fn text_schema(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| Field::new(*name, DataType::Utf8, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}
