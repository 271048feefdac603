//! Options of IP that TCP and UDP sockets share.

use std::io;

use socket2::{Domain, SockRef};

/// Options that are not set keep the kernel's default.
#[derive(Clone, Debug, Default)]
pub(super) struct IpOptions {
    pub(super) device: Option<String>,
    pub(super) ttl: Option<u32>,
    pub(super) tos: Option<u32>,
}

impl IpOptions {
    pub(super) fn apply_to(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        if self.ttl.is_none() && self.tos.is_none() {
            return Ok(());
        }
        let is_v6 = socket.domain()? == Domain::IPV6;
        // An IPv6 socket may have peers of IPv4.
        if let Some(ttl) = self.ttl {
            socket.set_ttl_v4(ttl)?;
            if is_v6 {
                socket.set_unicast_hops_v6(ttl)?;
            }
        }
        if let Some(tos) = self.tos {
            socket.set_tos_v4(tos)?;
            if is_v6 {
                socket.set_tclass_v6(tos)?;
            }
        }
        Ok(())
    }
}

/// The size of a buffer as the kernel takes it, an `int`. It lowers what is larger than its limit.
pub(super) fn buffer_size(bytes: usize) -> usize {
    bytes.min(i32::MAX as usize)
}
