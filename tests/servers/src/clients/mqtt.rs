//! rumqttc by its interface for threads: a client of tokio, with a runtime of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use rumqttc::{Client, Connection, Event, MqttOptions, Packet, QoS};

use super::{Opener, Result, World, check};

/// Clients need names of their own.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Sends messages to a topic of its own, and receives each from the server.
pub(super) fn rumqttc(world: &World) -> Result<Opener> {
    let port = world.port;
    Ok(Box::new(move || {
        let n = OPENED.fetch_add(1, Ordering::Relaxed);
        let name = format!("client{}-{n}", std::process::id());
        let mut options = MqttOptions::new(&name, "127.0.0.1", port);
        options.set_clean_session(true);
        let (client, mut connection) = Client::new(options, 10);
        client.subscribe(&name, QoS::AtMostOnce)?;
        while !matches!(next(&mut connection)?, Packet::SubAck(_)) {}
        Ok(Box::new(move |i| {
            for turn in 0..5 {
                let message = format!("message {i} {turn}").into_bytes();
                client.publish(&name, QoS::AtMostOnce, false, message.clone())?;
                let got = loop {
                    if let Packet::Publish(got) = next(&mut connection)? {
                        break got;
                    }
                };
                check(&got.payload[..].to_vec(), &message)?;
            }
            Ok(())
        }))
    }))
}

/// The next packet of the server.
fn next(connection: &mut Connection) -> Result<Packet> {
    loop {
        let event = connection.recv().map_err(|_| "the client is closed")?;
        if let Event::Incoming(packet) = event? {
            return Ok(packet);
        }
    }
}
