//! An object store client, with the threads for its requests.

use std::future::Future;
use std::io;
use std::sync::Arc;

use image::ObjectName;
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::runtime::{Builder, Runtime};

/// Number of threads for requests. They mostly wait for the network.
const THREAD_COUNT: usize = 2;

/// An object store with the threads for its requests.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// `None` only during drop.
    runtime: Option<Runtime>,
}

impl Client {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, prefix: Path) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREAD_COUNT)
            .thread_name("image-objects")
            .enable_all()
            .build()?;
        Ok(Self { objects, prefix, runtime: Some(runtime) })
    }

    /// Runs a future to completion, blocking the caller.
    pub(crate) fn wait<T>(&self, requests: impl Future<Output = T>) -> T {
        self.runtime().block_on(requests)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("only dropping takes it")
    }

    pub(crate) fn path(&self, object: ObjectName) -> Path {
        let prefix = self.prefix.clone();
        match object {
            ObjectName::Image(number) => prefix.join("images").join(image_name(number)),
            ObjectName::Pack(name) => prefix.join("packs").join(name.to_string()),
            ObjectName::Extract(name) => prefix.join("journal").join(name.to_string()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Blocking is not allowed in every context, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn image_name(number: u32) -> String {
    format!("{number:010}")
}
