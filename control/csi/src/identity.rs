//! Identity service: name and capabilities of the driver.

use tonic::Status;

use crate::driver::{Driver, NAME};
use crate::wire::{
    Flag, Kind, Nothing, PluginCapabilities, PluginCapability, PluginInfo, Readiness, plugin,
};

impl Driver {
    pub(crate) fn plugin_info(&self, _: Nothing) -> Result<PluginInfo, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(PluginInfo { name: NAME.to_owned(), vendor_version, ..PluginInfo::default() })
    }

    pub(crate) fn plugin_capabilities(&self, _: Nothing) -> Result<PluginCapabilities, Status> {
        let services = [
            plugin::CONTROLLER_SERVICE,
            plugin::VOLUME_ACCESSIBILITY_CONSTRAINTS,
            plugin::GROUP_CONTROLLER_SERVICE,
        ];
        let services = services
            .map(|kind| PluginCapability { service: Some(Kind { kind }), volume_expansion: None });
        let expansion = PluginCapability {
            service: None,
            volume_expansion: Some(Kind { kind: plugin::ONLINE_EXPANSION }),
        };
        let capabilities = services.into_iter().chain([expansion]).collect();
        Ok(PluginCapabilities { capabilities })
    }

    /// Reports readiness. The driver is ready if its daemon is.
    pub(crate) fn probe(&self, _: Nothing) -> Result<Readiness, Status> {
        Ok(Readiness { ready: Some(Flag { value: self.daemon.is_ready() }) })
    }
}
