//! lettre and suppaftp.

use lettre::{Message, SmtpTransport, Transport};
use suppaftp::FtpStream;
use suppaftp::types::FileType;

use super::{Opener, Result, World, check};

/// Each mail has a connection of its own. The server answers with the last line of the mail.
pub(super) fn lettre(world: &World) -> Result<Opener> {
    let port = world.port;
    Ok(Box::new(move || {
        let transport = SmtpTransport::builder_dangerous("127.0.0.1")
            .port(port)
            .build();
        Ok(Box::new(move |i| {
            let text = format!("mail {i}");
            let message = Message::builder()
                .from("a@localhost".parse()?)
                .to("b@localhost".parse()?)
                .subject("a test")
                .body(text.clone())?;
            let response = transport.send(&message)?;
            check(&response.first_line(), &Some(text.as_str()))
        }))
    }))
}

/// One login for each connection; each transfer has a connection of its own.
pub(super) fn suppaftp(world: &World) -> Result<Opener> {
    let port = world.port;
    Ok(Box::new(move || {
        let mut client = FtpStream::connect(("127.0.0.1", port))?;
        client.login("anonymous", "a@localhost")?;
        client.transfer_type(FileType::Binary)?;
        Ok(Box::new(move |i| {
            let (name, bytes) = (format!("file{i}"), vec![i as u8; 20_000]);
            client.put_file(&name, &mut &*bytes)?;
            check(client.retr_as_buffer(&name)?.get_ref(), &bytes)
        }))
    }))
}
