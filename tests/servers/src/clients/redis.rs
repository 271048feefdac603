//! redis, alone and in a pool of r2d2.

use std::time::Duration;

use redis::{Client, Commands, Connection};

use super::{Opener, Result, World, check};

/// Connections of a pool of r2d2.
pub(super) const POOL: u32 = 16;

fn client(world: &World) -> Result<Client> {
    Ok(Client::open(format!("redis://127.0.0.1:{}/", world.port))?)
}

fn talk(connection: &mut Connection, i: usize) -> Result {
    for turn in 0..5 {
        let (key, value) = (format!("key{i}"), format!("value {i} {turn}"));
        let () = connection.set(&key, &value)?;
        check(&connection.get::<_, String>(&key)?, &value)?;
    }
    Ok(())
}

pub(super) fn plain(world: &World) -> Result<Opener> {
    let client = client(world)?;
    Ok(Box::new(move || {
        let mut connection = client.get_connection()?;
        Ok(Box::new(move |i| talk(&mut connection, i)))
    }))
}

/// A caller that finds no free connection in the pool waits in a lock of parking_lot.
pub(super) fn pooled(world: &World) -> Result<Opener> {
    let pool = r2d2::Pool::builder()
        .max_size(POOL)
        .connection_timeout(Duration::from_secs(60))
        .build(client(world)?)?;
    Ok(Box::new(move || {
        let pool = pool.clone();
        Ok(Box::new(move |i| talk(&mut *pool.get()?, i)))
    }))
}
