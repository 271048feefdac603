//! mysql, postgres and rusqlite.

use std::path::Path;
use std::time::Duration;

use mysql::prelude::Queryable;
use postgres::NoTls;

use super::{Opener, Result, World, check};

/// A connection to MariaDB.
///
/// # Errors
///
/// Errors of the crate.
pub fn mysql_conn(port: u16) -> Result<mysql::Conn> {
    let options = mysql::OptsBuilder::new()
        .ip_or_hostname(Some("127.0.0.1"))
        .tcp_port(port)
        .user(Some("root"))
        // Otherwise it changes to the server's Unix socket.
        .prefer_socket(false);
    Ok(mysql::Conn::new(options)?)
}

pub(super) fn mysql(world: &World) -> Result<Opener> {
    let port = world.port;
    Ok(Box::new(move || {
        let mut conn = mysql_conn(port)?;
        Ok(Box::new(move |i| {
            for turn in 0..5 {
                let query = "SELECT ?, CONCAT('turn ', ?)";
                let rows: Vec<(usize, String)> = conn.exec(query, (i, turn))?;
                check(&rows, &vec![(i, format!("turn {turn}"))])?;
            }
            Ok(())
        }))
    }))
}

/// A connection to PostgreSQL. The crate starts a runtime of tokio for it, on the caller's thread.
///
/// # Errors
///
/// Errors of the crate.
pub fn postgres_client(port: u16) -> Result<postgres::Client> {
    let config = format!("host=127.0.0.1 port={port} user=postgres");
    Ok(postgres::Client::connect(&config, NoTls)?)
}

pub(super) fn postgres(world: &World) -> Result<Opener> {
    let port = world.port;
    Ok(Box::new(move || {
        let mut client = postgres_client(port)?;
        let sum = client.prepare("SELECT $1::INT + $2::INT")?;
        Ok(Box::new(move |i| {
            let i = i32::try_from(i)?;
            for turn in 0..5 {
                let row = client.query_one(&sum, &[&i, &turn])?;
                check(&row.get::<_, i32>(0), &i.wrapping_add(turn))?;
            }
            Ok(())
        }))
    }))
}

/// A connection to a database in the directory, with a table of numbers.
fn sqlite(dir: &Path) -> Result<rusqlite::Connection> {
    let db = rusqlite::Connection::open(dir.join("db"))?;
    db.busy_timeout(Duration::from_secs(60))?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
         CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY, square INTEGER)",
    )?;
    Ok(db)
}

pub(super) fn rusqlite(world: &World) -> Result<Opener> {
    let dir = world.dir.clone();
    // The table is made by one connection, before others wait for it.
    drop(sqlite(&dir)?);
    Ok(Box::new(move || {
        let db = sqlite(&dir)?;
        Ok(Box::new(move |i| {
            let i = i64::try_from(i)?;
            db.execute("INSERT OR REPLACE INTO numbers VALUES (?1, ?1 * ?1)", [i])?;
            let square = "SELECT square FROM numbers WHERE n = ?1";
            let square: i64 = db.query_row(square, [i], |row| row.get(0))?;
            check(&square, &(i * i))
        }))
    }))
}
