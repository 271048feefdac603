//! Options that TCP and UDP sockets share.

use std::io;

use socket2::{Domain, SockRef};

/// Options that are not set keep the kernel's default.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedOptions {
    pub(super) device: Option<String>,
    pub(super) ttl: Option<u32>,
    pub(super) tos: Option<u32>,
    pub(super) recv_buffer_bytes: Option<usize>,
    pub(super) send_buffer_bytes: Option<usize>,
}

impl SharedOptions {
    pub(super) fn apply_to(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        if let Some(bytes) = self.recv_buffer_bytes {
            socket.set_recv_buffer_size(buffer_size(bytes))?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(buffer_size(bytes))?;
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
fn buffer_size(bytes: usize) -> usize {
    bytes.min(i32::MAX as usize)
}
