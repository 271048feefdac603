//! The paths, and the answer at each.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use windlass::debug::{Dump, Leaks};
use windlass_topology::render::svg;

use crate::http::{self, Answer, Connection, Request};
use crate::server::Shared;
use crate::{goroutines, leaks, pprof, prometheus};

const PAGE: &str = include_str!("page.html");
/// Where the state goes in the page.
const STATE: &str = "/*STATE*/";

/// The page's own style and script, and connections to where it came from; nothing else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";
const SVG_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// How many goroutines a list has by default, and how many bytes at most.
const GOROUTINES: usize = 10_000;
const LIST_BYTES: usize = 16 * 1024 * 1024;

/// How often it is looked whether the client of a trace or a profile is there.
const LOOK: Duration = Duration::from_millis(100);

/// The longest trace, whose logs have a size, and the longest profile.
const TRACE_SECONDS: f64 = 60.0;
const PROFILE_SECONDS: f64 = 300.0;

/// Answers a request. `false` if the connection must end.
///
/// # Errors
///
/// The errors of the connection, or of an answer that was cut off.
pub(crate) fn answer(
    shared: &Shared,
    connection: &mut Connection,
    request: &Request,
) -> io::Result<bool> {
    let handle = &shared.handle;
    let answer = match request.path() {
        // With a first reading, so that it is filled at once.
        "/" => Answer::new(
            "text/html; charset=utf-8",
            PAGE.replace(STATE, &shared.sampler.state()),
        )
        .with("Content-Security-Policy", PAGE_POLICY)
        .with("X-Frame-Options", "DENY"),
        "/metrics" => Answer::new(
            prometheus::CONTENT_TYPE,
            prometheus::page(handle, &shared.own_metrics),
        ),
        "/events" => return events(shared, connection, request).map(|()| false),
        "/debug/state" => Answer::new(crate::JSON, &*shared.sampler.state()),
        "/debug/goroutines" => {
            let Some(_place) = shared.dump() else {
                let answer = Answer::text(http::UNAVAILABLE, "too many dumps are being taken");
                return send(connection, request, &answer);
            };
            // A client that reads slowly keeps the place, as the list is in memory.
            return send(connection, request, &list(shared, request));
        }
        "/debug/leaks" => {
            let Some(_place) = shared.dump() else {
                let answer = Answer::text(http::UNAVAILABLE, "too many dumps are being taken");
                return send(connection, request, &answer);
            };
            return send(connection, request, &leaked(shared, request));
        }
        "/debug/trace" => return trace(shared, connection, request),
        "/debug/profile" => {
            let name = "profile.pb.gz";
            let take = |time, goes_on: &mut (dyn FnMut() -> bool + Send)| {
                let profile = handle.profile_while(time, goes_on)?;
                Ok(move |out: &mut dyn Write| pprof::write(&profile, out))
            };
            return profile(shared, connection, request, name, take);
        }
        "/debug/contention" => {
            let name = "contention.pb.gz";
            let take = |time, goes_on: &mut (dyn FnMut() -> bool + Send)| {
                let profile = handle.profile_waits(time, goes_on)?;
                Ok(move |out: &mut dyn Write| pprof::write(&profile, out))
            };
            return profile(shared, connection, request, name, take);
        }
        "/debug/flight" => return flight(shared, connection, request),
        "/debug/topology.svg" => {
            let picture = svg::placement(handle.topology(), &handle.plan());
            Answer::new("image/svg+xml", picture).with("Content-Security-Policy", SVG_POLICY)
        }
        _ => Answer::text(
            http::NOT_FOUND,
            "not found; / is the page, which has links to the rest",
        ),
    };
    send(connection, request, &answer)
}

/// Sends an answer that is there as a whole. For a request of which only the head is wanted, what would
/// take time is not done.
fn send(connection: &mut Connection, request: &Request, answer: &Answer) -> io::Result<bool> {
    connection.answer(Some(request), answer)?;
    Ok(request.keeps_alive)
}

fn list(shared: &Shared, request: &Request) -> Answer {
    let format = request.parameter("format").unwrap_or("text");
    let debug = request.parameter("debug").unwrap_or("1");
    let limit = match limit(request) {
        Ok(limit) => limit,
        Err(answer) => return answer,
    };
    let list: fn(Dump, usize, usize) -> String = match (format, debug) {
        ("json", _) => goroutines::json,
        ("text", "1") => goroutines::grouped,
        ("text", "2") => goroutines::one_by_one,
        ("text", _) => {
            return Answer::text(
                http::BAD_REQUEST,
                "debug: choose 1 (grouped by stack) or 2 (one by one)",
            );
        }
        _ => return Answer::text(http::BAD_REQUEST, "format: choose text or json"),
    };
    let content_type = match format {
        "json" => crate::JSON,
        _ => crate::TEXT,
    };
    // One at a time: a dump takes more memory than the list that is made of it.
    let _one = shared.lock_dump();
    Answer::new(content_type, list(shared.handle.dump(), limit, LIST_BYTES))
}

fn leaked(shared: &Shared, request: &Request) -> Answer {
    let limit = match limit(request) {
        Ok(limit) => limit,
        Err(answer) => return answer,
    };
    type Text = fn(Leaks, usize, usize) -> String;
    let (content_type, list): (_, Text) = match request.parameter("format").unwrap_or("text") {
        "json" => (crate::JSON, leaks::json),
        "text" => (crate::TEXT, leaks::text),
        _ => return Answer::text(http::BAD_REQUEST, "format: choose text or json"),
    };
    // One at a time, with dumps: it reads the memory of the process.
    let _one = shared.lock_dump();
    match shared.handle.leaks() {
        Ok(found) => Answer::new(content_type, list(found, limit, LIST_BYTES)),
        Err(e) => Answer::text(
            http::UNAVAILABLE,
            &format!("leaked goroutines cannot be looked for: {e}"),
        ),
    }
}

/// The parameter `limit`.
fn limit(request: &Request) -> Result<usize, Answer> {
    match request.parameter("limit").map(str::parse::<usize>) {
        None => Ok(GOROUTINES),
        Some(Ok(limit)) => Ok(limit),
        Some(Err(_)) => Err(Answer::text(http::BAD_REQUEST, "limit: a number is wanted")),
    }
}

/// The parameter `seconds`.
fn seconds(request: &Request, default: f64, most: f64) -> Result<Duration, Answer> {
    let seconds = match request.parameter("seconds") {
        None => default,
        // A text that is no number is refused with the numbers out of range.
        Some(text) => text.parse().unwrap_or(f64::NAN),
    };
    match seconds > 0.0 && seconds <= most {
        true => Ok(Duration::from_secs_f64(seconds).max(Duration::from_millis(1))),
        false => Err(Answer::text(
            http::BAD_REQUEST,
            &format!("seconds: choose a number above 0, up to {most}"),
        )),
    }
}

const BUSY: &str =
    "another trace, profile or flight record is being taken; try again when it is over";

fn busy(connection: &mut Connection, request: &Request) -> io::Result<bool> {
    send(connection, request, &Answer::text(http::CONFLICT, BUSY))
}

/// Answers with something that takes the parameter `seconds` to make, one at a time. `make` sends it.
fn make(
    shared: &Shared,
    connection: &mut Connection,
    request: &Request,
    (default, most): (f64, f64),
    head: &Answer,
    make: impl FnOnce(&mut Connection, Duration) -> io::Result<bool>,
) -> io::Result<bool> {
    let time = match seconds(request, default, most) {
        Ok(time) => time,
        Err(answer) => return send(connection, request, &answer),
    };
    if request.is_head {
        return send(connection, request, head);
    }
    let Some(_turn) = shared.turn() else {
        return busy(connection, request);
    };
    make(connection, time)
}

fn trace(shared: &Shared, connection: &mut Connection, request: &Request) -> io::Result<bool> {
    let head = attachment(crate::JSON, "trace.json");
    let times = (5.0, TRACE_SECONDS);
    make(
        shared,
        connection,
        request,
        times,
        &head,
        |connection, time| {
            connection.begin_chunks(request, &head)?;
            let trace = shared.handle.start_trace();
            let end = Instant::now() + time;
            loop {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() || shared.wait(left.min(LOOK)) {
                    break;
                }
                // Space before a file of JSON is no part of it.
                if connection.has_lost_client(|client| client.chunk(request, b" ")) {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
            connection.end_chunks(request, |out| trace.finish(out))?;
            Ok(request.keeps_alive)
        },
    )
}

/// Answers with what `take` makes, the function that writes a profile.
fn profile<W: FnOnce(&mut dyn Write) -> io::Result<()>>(
    shared: &Shared,
    connection: &mut Connection,
    request: &Request,
    name: &str,
    take: impl FnOnce(Duration, &mut (dyn FnMut() -> bool + Send)) -> io::Result<W>,
) -> io::Result<bool> {
    let head = attachment("application/octet-stream", name);
    let times = (10.0, PROFILE_SECONDS);
    make(
        shared,
        connection,
        request,
        times,
        &head,
        |connection, time| {
            let (mut looked, mut is_lost, mut has_begun) = (Instant::now(), false, false);
            // The end of the console ends all connections.
            let profile = take(time, &mut || {
                if looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    // A profile that goes on does not fail.
                    is_lost = connection.has_lost_client(|client| {
                        has_begun = true;
                        client.begin_chunks(request, &head)
                    });
                }
                !is_lost
            });
            match profile {
                _ if is_lost => Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(write) => {
                    if !has_begun {
                        connection.begin_chunks(request, &head)?;
                    }
                    connection.end_chunks(request, write)?;
                    Ok(request.keeps_alive)
                }
                Err(e) => {
                    let status = match e.kind() {
                        io::ErrorKind::Unsupported => http::NOT_IMPLEMENTED,
                        io::ErrorKind::ResourceBusy => http::CONFLICT,
                        _ => http::INTERNAL,
                    };
                    send(connection, request, &Answer::text(status, &e.to_string()))
                }
            }
        },
    )
}

fn flight(shared: &Shared, connection: &mut Connection, request: &Request) -> io::Result<bool> {
    // The record is copied, and stays in memory until a slow client has read it.
    let Some(_turn) = shared.turn() else {
        return busy(connection, request);
    };
    // Found out before the head of the answer is sent.
    if let Err(e) = shared.handle.write_flight_record(FirstByte)
        && e.kind() == io::ErrorKind::Unsupported
    {
        let answer = Answer::text(http::NOT_FOUND, &e.to_string());
        return send(connection, request, &answer);
    }
    let head = attachment(crate::JSON, "flight.json");
    if request.is_head {
        return send(connection, request, &head);
    }
    connection.answer_in_chunks(request, &head, |out| shared.handle.write_flight_record(out))?;
    Ok(request.keeps_alive)
}

/// A writer that refuses to be written to.
struct FirstByte;

impl io::Write for FirstByte {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WriteZero.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer that browsers save under this name.
fn attachment(content_type: &'static str, name: &str) -> Answer {
    let disposition = format!("attachment; filename=\"{name}\"");
    Answer::new(content_type, "").with("Content-Disposition", &disposition)
}

/// Server-sent events: the state once a second, until the client or the console goes.
fn events(shared: &Shared, connection: &mut Connection, request: &Request) -> io::Result<()> {
    let head = Answer::new("text/event-stream", "");
    if request.is_head {
        return connection.answer(Some(request), &head);
    }
    let Some(_watcher) = shared.watcher() else {
        let answer = Answer::text(http::UNAVAILABLE, "too many pages are open already");
        return connection.answer(Some(request), &answer);
    };
    connection.begin_events(&head)?;
    loop {
        let state = shared.sampler.state();
        connection.event(&format!("data: {state}\n\n"))?;
        if shared.wait(crate::state::INTERVAL) {
            return Ok(());
        }
    }
}
