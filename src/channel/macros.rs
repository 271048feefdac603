//! `select!` and `select_biased!`.
//!
//! The macro parses its tokens arm by arm into a list. Macro hygiene gives each arm a variable of
//! its own for its sender or receiver. The list is then expanded three times: as the senders and
//! receivers, as the [`Arm`](super::__select::Arm)s, and as the bodies.

/// Waits until one of several channel operations is possible, performs it and runs its body.
///
/// ```text
/// recv(receiver) -> result => body,
/// send(sender, message) -> result => body,
/// default => body,                  // if no operation is possible at once
/// default(timeout) => body,         // if no operation becomes possible within the timeout
/// ```
///
/// There may be any number of `recv` and `send` arms, and at most one `default`. If several
/// operations are possible, one of them is chosen at random; see
/// [`select_biased!`](crate::select_biased!). An operation whose channel is disconnected is
/// possible, and its `result` is an error. The senders and receivers are evaluated once, in order;
/// `message` is evaluated only when its arm was chosen. All bodies have the same type, which is the
/// type of the macro call.
///
/// Use [`Select`](crate::channel::Select) for a list of operations that is built at run time.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. With `default =>` it never waits. If the runtime
/// shuts down, a waiting goroutine unwinds. In a destructor that runs during this unwinding, an
/// operation is chosen that fails. An ambient [context](crate::context) does not end the wait: add
/// an arm `recv(ctx.done())` instead.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::channel::{after, bounded, select};
///
/// let (requests, r) = bounded(0);
/// let (quit, done) = bounded::<()>(0);
/// let server = std::thread::spawn(move || {
///     let mut sum = 0;
///     loop {
///         select! {
///             recv(r) -> request => sum += request.unwrap_or(0),
///             recv(done) -> _ => return sum,
///             recv(after(Duration::from_secs(60))) -> _ => panic!("no request came"),
///         }
///     }
/// });
/// requests.send(2).unwrap();
/// select! {
///     send(requests, 3) -> sent => assert!(sent.is_ok()),
///     default(Duration::from_secs(60)) => panic!("the server does not receive"),
/// }
/// drop(quit);
/// assert_eq!(server.join().unwrap(), 5);
/// # drop(requests);
/// ```
#[macro_export]
macro_rules! select {
    ($($tokens:tt)*) => {
        $crate::__windlass_select!(@begin { false } $($tokens)*)
    };
}

/// As [`select!`](crate::select!), but if several operations are possible, the arm written first is
/// chosen.
///
/// # Blocking
///
/// As [`select!`](crate::select!).
///
/// # Examples
///
/// ```
/// use windlass::channel::{select_biased, unbounded};
///
/// let (urgent, u) = unbounded();
/// let (usual, r) = unbounded();
/// usual.send("water the flowers").unwrap();
/// urgent.send("put out the fire").unwrap();
/// select_biased! {
///     recv(u) -> task => assert_eq!(task, Ok("put out the fire")),
///     recv(r) -> _ => unreachable!(),
/// }
/// ```
#[macro_export]
macro_rules! select_biased {
    ($($tokens:tt)*) => {
        $crate::__windlass_select!(@begin { true } $($tokens)*)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __windlass_select {
    (@begin $biased:tt) => {
        ::core::compile_error!("empty `select!` block")
    };
    (@begin $biased:tt $($rest:tt)+) => {
        $crate::__windlass_select!(@arms $biased { 0 } {} {} $($rest)+)
    };

    // @arms {biased} {number of arms} {arms} {default} rest

    (@arms { $biased:tt } $n:tt { $($arms:tt)* } $default:tt) => {
        $crate::__windlass_select!(@done $biased { $($arms)* } $default)
    };
    (@arms $biased:tt { $n:expr } { $($arms:tt)* } $default:tt
        recv($r:expr $(,)?) -> $res:pat => $($rest:tt)+
    ) => {
        $crate::__windlass_select!(
            @body $biased { $n + 1 } { $($arms)* } { recv end ($r) () ($n) ($res) } $default
            $($rest)+
        )
    };
    (@arms $biased:tt { $n:expr } { $($arms:tt)* } $default:tt
        send($s:expr, $msg:expr $(,)?) -> $res:pat => $($rest:tt)+
    ) => {
        $crate::__windlass_select!(
            @body $biased { $n + 1 } { $($arms)* } { send end ($s) ($msg) ($n) ($res) } $default
            $($rest)+
        )
    };
    (@arms $biased:tt $n:tt $arms:tt {} default $(())? => $($rest:tt)+) => {
        $crate::__windlass_select!(@body $biased $n $arms { now } {} $($rest)+)
    };
    (@arms $biased:tt $n:tt $arms:tt {} default($timeout:expr $(,)?) => $($rest:tt)+) => {
        $crate::__windlass_select!(@body $biased $n $arms { within ($timeout) } {} $($rest)+)
    };
    (@arms $biased:tt $n:tt $arms:tt { $($one:tt)+ } default $($rest:tt)*) => {
        ::core::compile_error!("more than one `default` in a `select!` block")
    };
    (@arms $biased:tt $n:tt $arms:tt $default:tt $($rest:tt)*) => {
        ::core::compile_error!(
            "expected `recv(receiver) -> result => body`, \
             `send(sender, message) -> result => body`, `default => body` \
             or `default(timeout) => body`, with commas between them"
        )
    };

    // @body {biased} {number of arms} {arms} {arm or default without its body} {default} rest

    (@body $biased:tt $n:tt $arms:tt $head:tt $default:tt $body:block, $($rest:tt)*) => {
        $crate::__windlass_select!(@add $biased $n $arms $head $default ($body) $($rest)*)
    };
    (@body $biased:tt $n:tt $arms:tt $head:tt $default:tt $body:block $($rest:tt)*) => {
        $crate::__windlass_select!(@add $biased $n $arms $head $default ($body) $($rest)*)
    };
    (@body $biased:tt $n:tt $arms:tt $head:tt $default:tt $body:expr, $($rest:tt)*) => {
        $crate::__windlass_select!(@add $biased $n $arms $head $default ($body) $($rest)*)
    };
    (@body $biased:tt $n:tt $arms:tt $head:tt $default:tt $body:expr) => {
        $crate::__windlass_select!(@add $biased $n $arms $head $default ($body))
    };
    (@body $biased:tt $n:tt $arms:tt $head:tt $default:tt $($rest:tt)*) => {
        ::core::compile_error!("expected a comma after the body of an arm of `select!`")
    };

    (@add $biased:tt $n:tt $arms:tt { now } {} $body:tt $($rest:tt)*) => {
        $crate::__windlass_select!(@arms $biased $n $arms { now $body } $($rest)*)
    };
    (@add $biased:tt $n:tt $arms:tt { within $timeout:tt } {} $body:tt $($rest:tt)*) => {
        $crate::__windlass_select!(@arms $biased $n $arms { within $timeout $body } $($rest)*)
    };
    (@add $biased:tt $n:tt { $($arms:tt)* } { $($head:tt)* } $default:tt $body:tt $($rest:tt)*) => {
        $crate::__windlass_select!(
            @arms $biased $n { $($arms)* [ $($head)* $body ] } $default $($rest)*
        )
    };

    (@done $biased:tt
        { $([ $kind:ident $end:ident ($handle:expr) $msg:tt ($n:expr) ($res:pat) ($body:expr) ])* }
        $default:tt
    ) => {
        match ($(&$handle,)*) {
            ($($end,)*) => {
                $(let $end: $crate::__windlass_select!(@type $kind) = $end;)*
                $crate::__windlass_select!(
                    @wait $biased operation { $($kind $end ($n))* } $default
                    {
                        $(
                            if operation.index() == $n {
                                let $res = $crate::__windlass_select!(
                                    @complete $kind operation $end $msg
                                );
                                $body
                            } else
                        )* {
                            ::core::unreachable!("one of the operations was selected")
                        }
                    }
                )
            }
        }
    };

    (@type recv) => { &$crate::channel::Receiver<_> };
    (@type send) => { &$crate::channel::Sender<_> };

    (@complete recv $operation:ident $end:ident ()) => { $operation.recv($end) };
    (@complete send $operation:ident $end:ident ($msg:expr)) => { $operation.send($end, $msg) };

    (@wait $biased:tt $operation:ident { $($kind:ident $end:ident ($n:expr))* } {} $go:block) => {{
        let $operation = $crate::channel::__select::select(
            &mut [$($crate::channel::__select::Arm::$kind($end).called($n)),*],
            $biased,
        );
        $go
    }};
    (@wait $biased:tt $operation:ident { $($kind:ident $end:ident ($n:expr))* }
        { now ($body:expr) } $go:block
    ) => {{
        let selected = $crate::channel::__select::try_select(
            &mut [$($crate::channel::__select::Arm::$kind($end).called($n)),*],
            $biased,
        );
        match selected {
            ::core::result::Result::Ok($operation) => $go,
            ::core::result::Result::Err(_) => $body,
        }
    }};
    (@wait $biased:tt $operation:ident { $($kind:ident $end:ident ($n:expr))* }
        { within ($timeout:expr) ($body:expr) } $go:block
    ) => {{
        let timeout = $timeout;
        let selected = $crate::channel::__select::select_timeout(
            &mut [$($crate::channel::__select::Arm::$kind($end).called($n)),*],
            timeout,
            $biased,
        );
        match selected {
            ::core::result::Result::Ok($operation) => $go,
            ::core::result::Result::Err(_) => $body,
        }
    }};
}

pub use select;
pub use select_biased;
