//! gRPC server on the CSI socket and the kubelet's registration socket, with bounded concurrency.
//!
//! Each call runs on a thread that may block. After a time limit the caller gets an error, but the
//! call continues. A repeated call finds it in progress or completed.

use std::convert::Infallible;
use std::fs::Permissions;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use program::Signals;
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use crate::authority::Connection;
use crate::driver::{Driver, NAME};
use crate::options::Options;
use crate::wire::{Nothing, Registration, RegistrationStatus};

/// Maximum number of connections. Others wait to be accepted.
const CONNECTION_COUNT_MAX: usize = 32;

/// Maximum number of concurrent calls per connection.
const CALL_COUNT_MAX: u32 = 64;

/// Time limit for the response to a call. Shorter than the kubelet's.
const CALL_TIME_MAX: Duration = Duration::from_secs(110);

/// CSI version that the driver reports to the kubelet. Only its major part matters.
const VERSIONS: &str = "1.0.0";

/// Socket paths.
pub(crate) struct Sockets {
    csi: PathBuf,
    /// Registration socket, on which the kubelet asks for the path of the CSI socket.
    registration: Option<PathBuf>,
    told_to_kubelet: PathBuf,
}

impl Sockets {
    pub(crate) fn of(options: &Options) -> Self {
        let registered = |folder: &PathBuf| folder.join(format!("{NAME}-reg.sock"));
        let told = options.kubelet_socket.as_ref().unwrap_or(&options.socket);
        Self {
            csi: options.socket.clone(),
            registration: options.registry.as_ref().map(registered),
            told_to_kubelet: told.clone(),
        }
    }
}

/// Serves until the process is asked to stop.
pub(crate) async fn run(sockets: &Sockets, driver: &Arc<Driver>) -> anyhow::Result<()> {
    let signals = Signals::listen_to_stop()?;
    let csi = bind(&sockets.csi)?;
    let registration = sockets.registration.as_deref().map(bind).transpose()?;
    let endpoint = sockets.told_to_kubelet.to_string_lossy().into_owned();
    tracing::info!(socket = %sockets.csi.display(), node = driver.node, "serving");
    let serving = async {
        tokio::select! {
            () = serve(csi, move |driver, request| Box::pin(answer(driver, request)), driver) => {}
            () = serve_registration(registration, endpoint, driver) => {}
        }
    };
    program::serve_until_stopped(signals, serving).await;
    for socket in sockets.registration.iter().chain([&sockets.csi]) {
        program::remove_if_there(socket)
            .with_context(|| format!("cannot remove the socket {}", socket.display()))?;
    }
    Ok(())
}

type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

async fn serve_registration(
    listener: Option<UnixListener>,
    endpoint: String,
    driver: &Arc<Driver>,
) {
    let Some(listener) = listener else { return std::future::pending().await };
    let answer = move |driver, request| -> Answering {
        Box::pin(answer_registration(driver, endpoint.clone(), request))
    };
    serve(listener, answer, driver).await;
}

async fn serve<A>(listener: UnixListener, answer: A, driver: &Arc<Driver>)
where
    A: Fn(Arc<Driver>, Request<Incoming>) -> Answering + Clone + Send + 'static,
{
    let serving = |(connection, _), seat| {
        let serving = serve_connection(connection, answer.clone(), Arc::clone(driver));
        async move {
            let _seat = seat;
            serving.await
        }
    };
    program::serve_all("connection", CONNECTION_COUNT_MAX, || listener.accept(), serving).await;
}

async fn serve_connection<A>(
    connection: UnixStream,
    answer: A,
    driver: Arc<Driver>,
) -> Result<(), hyper::Error>
where
    A: Fn(Arc<Driver>, Request<Incoming>) -> Answering + Clone + Send + 'static,
{
    let service = service_fn(move |request| {
        let answering = answer(Arc::clone(&driver), request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(CALL_COUNT_MAX)
        .serve_connection(TokioIo::new(Connection::new(connection)), service)
        .await
}

/// Creates a socket for root only, and replaces the old one atomically.
fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let doing = |what: &str| format!("cannot {what} the socket {}", path.display());
    let folder = path.parent().with_context(|| doing("find the directory of"))?;
    std::fs::create_dir_all(folder).with_context(|| doing("create the directory of"))?;
    program::bind_in_place(path, |new_path| {
        let mode = Permissions::from_mode(0o600);
        std::fs::set_permissions(new_path, mode).with_context(|| doing("change the mode of"))
    })
}

/// Dispatches gRPC paths to functions of the driver.
macro_rules! answered {
    ($driver:expr, $request:expr, { $($path:literal => $function:expr,)* }) => {
        match $request.uri().path() {
            $($path => unary($driver, $request, $function).await,)*
            path => Status::unimplemented(format!("unimplemented method {path}")).into_http(),
        }
    };
}

async fn answer(driver: Arc<Driver>, request: Request<Incoming>) -> Response<Body> {
    answered!(driver, request, {
        "/csi.v1.Identity/GetPluginInfo" => Driver::plugin_info,
        "/csi.v1.Identity/GetPluginCapabilities" => Driver::plugin_capabilities,
        "/csi.v1.Identity/Probe" => Driver::probe,
        "/csi.v1.Controller/ControllerGetCapabilities" => Driver::controller_capabilities,
        "/csi.v1.Controller/CreateVolume" => Driver::create_volume,
        "/csi.v1.Controller/DeleteVolume" => Driver::delete_volume,
        "/csi.v1.Controller/ValidateVolumeCapabilities" => Driver::validate,
        "/csi.v1.Controller/ListVolumes" => Driver::list_volumes,
        "/csi.v1.Controller/ControllerGetVolume" => Driver::show_volume,
        "/csi.v1.Controller/ControllerGetVolumeHealth" => Driver::volume_health,
        "/csi.v1.Controller/GetCapacity" => Driver::capacity,
        "/csi.v1.Controller/ControllerExpandVolume" => Driver::expand_volume,
        "/csi.v1.Controller/CreateSnapshot" => Driver::create_snapshot,
        "/csi.v1.Controller/DeleteSnapshot" => Driver::delete_snapshot,
        "/csi.v1.Controller/ListSnapshots" => Driver::list_snapshots,
        "/csi.v1.Controller/GetSnapshot" => Driver::show_snapshot,
        "/csi.v1.GroupController/GroupControllerGetCapabilities" => Driver::group_capabilities,
        "/csi.v1.GroupController/CreateVolumeGroupSnapshot" => Driver::create_group,
        "/csi.v1.GroupController/DeleteVolumeGroupSnapshot" => Driver::delete_group,
        "/csi.v1.GroupController/GetVolumeGroupSnapshot" => Driver::show_group,
        "/csi.v1.Node/NodeGetCapabilities" => Driver::node_capabilities,
        "/csi.v1.Node/NodeGetInfo" => Driver::node_info,
        "/csi.v1.Node/NodeStageVolume" => Driver::stage,
        "/csi.v1.Node/NodeUnstageVolume" => Driver::unstage,
        "/csi.v1.Node/NodePublishVolume" => Driver::publish,
        "/csi.v1.Node/NodeUnpublishVolume" => Driver::unpublish,
        "/csi.v1.Node/NodeGetVolumeStats" => Driver::stats,
        "/csi.v1.Node/NodeGetVolumeHealth" => Driver::health,
        "/csi.v1.Node/NodeExpandVolume" => Driver::grow_filesystem,
    })
}

async fn answer_registration(
    driver: Arc<Driver>,
    endpoint: String,
    request: Request<Incoming>,
) -> Response<Body> {
    answered!(driver, request, {
        "/pluginregistration.Registration/GetInfo" => move |_: &Driver, _: Nothing| {
            Ok(Registration {
                kind: "CSIPlugin".to_owned(),
                name: NAME.to_owned(),
                endpoint,
                supported_versions: vec![VERSIONS.to_owned()],
            })
        },
        "/pluginregistration.Registration/NotifyRegistrationStatus" => note_registration,
    })
}

fn note_registration(_: &Driver, told: RegistrationStatus) -> Result<Nothing, Status> {
    match told.plugin_registered {
        true => tracing::info!("registered with the kubelet"),
        false => tracing::error!(
            error = told.error,
            "the kubelet rejected the registration of \
                                                      this driver"
        ),
    }
    Ok(Nothing {})
}

async fn unary<Q, A, F>(
    driver: Arc<Driver>,
    request: Request<Incoming>,
    function: F,
) -> Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: FnOnce(&Driver, Q) -> Result<A, Status> + Send + 'static,
{
    let name = request.uri().path().to_owned();
    let call = Call { driver, function: Some(function), name, types: std::marker::PhantomData };
    Grpc::new(ProstCodec::<A, Q>::default()).unary(call, request).await
}

/// A call of one function.
struct Call<Q, A, F> {
    driver: Arc<Driver>,
    /// Taken by the first and only request.
    function: Option<F>,
    name: String,
    types: std::marker::PhantomData<fn(Q) -> A>,
}

impl<Q, A, F> UnaryService<Q> for Call<Q, A, F>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: FnOnce(&Driver, Q) -> Result<A, Status> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let function = self.function.take().expect("a unary call has one request");
        let (driver, name) = (Arc::clone(&self.driver), std::mem::take(&mut self.name));
        let told = name.clone();
        let running = tokio::task::spawn_blocking(move || function(&driver, request.into_inner()));
        Box::pin(async move {
            let answered = match tokio::time::timeout(CALL_TIME_MAX, running).await {
                Ok(ended) => {
                    ended.unwrap_or_else(|_| Err(Status::internal("the call was aborted")))
                }
                Err(_) => Err(Status::deadline_exceeded(format!(
                    "{told} has not finished within {} s and continues; check that memlaned runs",
                    CALL_TIME_MAX.as_secs()
                ))),
            };
            match &answered {
                Ok(_) => tracing::debug!(call = told, "done"),
                Err(status) => {
                    tracing::warn!(call = told, code = ?status.code(), "{}", status.message());
                }
            }
            answered.map(tonic::Response::new)
        })
    }
}
