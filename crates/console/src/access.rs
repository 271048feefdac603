//! Access: a token, and for consoles without one the defences against web pages that make a
//! browser ask.

use crate::http::Request;
use crate::listen::{Address, is_loopback};

/// The shortest token: what can be guessed is no protection.
pub(crate) const TOKEN_BYTES: usize = 16;

/// The token that every request must have. Not shown by `Debug`.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn new(text: String) -> Token {
        Token(text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The token is missing or wrong.
    Token,
    /// The browser was sent by another site's name for this address.
    Host,
    /// The browser was sent by another site's page.
    Site,
}

/// Checks a request to a console at `address`, with `token` if it has one.
pub(crate) fn check(
    request: &Request,
    address: &Address,
    token: Option<&Token>,
) -> Result<(), Refusal> {
    match token {
        Some(token) => {
            let given = bearer(request).or(request.parameter("token"));
            if !given.is_some_and(|given| equal(given.as_bytes(), token.0.as_bytes())) {
                return Err(Refusal::Token);
            }
        }
        // DNS rebinding: a page of another site, whose name now has a loopback address.
        None if matches!(address, Address::Tcp(_))
            && !request.host().is_some_and(names_loopback) =>
        {
            return Err(Refusal::Host);
        }
        None => {}
    }
    match is_of_other_site(request) && !is_link_to_page(request) {
        true => Err(Refusal::Site),
        false => Ok(()),
    }
}

/// Whether a page of another site has made the browser ask. Such a page can read no answer, as none
/// permits it, but the work for the answer would be done.
///
/// Browsers say whose page asks. Those from before 2023 may not do so in `Sec-Fetch-Site`: then other
/// headers may name the site.
fn is_of_other_site(request: &Request) -> bool {
    let mut sites = request.headers("sec-fetch-site").peekable();
    if sites.peek().is_some() {
        return sites.any(|site| !matches!(site, "same-origin" | "none"));
    }
    let is_other = |url: &str| {
        let authority = url.strip_prefix("http://").map(|rest| {
            let end = rest.find('/').unwrap_or(rest.len());
            &rest[..end]
        });
        authority.is_none() || authority != request.host()
    };
    let named = request.headers("origin").chain(request.headers("referer"));
    let mut named = named.filter(|url| !url.is_empty());
    named.any(is_other)
}

/// Whether a person has followed a link to the page, which is harmless.
fn is_link_to_page(request: &Request) -> bool {
    request.path() == "/"
        && request.header("sec-fetch-mode") == Some("navigate")
        && request.header("sec-fetch-dest") == Some("document")
}

/// The token in `Authorization: Bearer`.
fn bearer(request: &Request) -> Option<&str> {
    let (scheme, token) = request.header("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether two values are equal, in a time that depends on their lengths only.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differences) == 0 && a.len() == b.len()
}

/// Whether a Host header names this machine by `localhost` or by a loopback address.
fn names_loopback(host: &str) -> bool {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let ip = bare.unwrap_or(host).parse();
    ip.is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_this_machine_or_not() {
        for host in [
            "localhost",
            "LocalHost:80",
            "127.0.0.1:6060",
            "127.9.9.9",
            "[::1]:1",
            "[::1]",
        ] {
            assert!(names_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org:80",
            "127.0.0.1.nip.io",
            "10.0.0.1",
        ] {
            assert!(!names_loopback(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(equal(b"secret", b"secret"));
        for other in [&b"secreT"[..], b"secre", b"secret1", b""] {
            assert!(!equal(other, b"secret"));
        }
    }
}
