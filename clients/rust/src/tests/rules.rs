//! The rules of docs/clients.md, before a peer. The number of a rule is in the name of its test.

use std::future::IntoFuture;
use std::mem::size_of_val;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::peer::*;
use crate::exchange::{Look, Pulse};
use crate::frames::Kind;
use crate::nodes::Node;
use crate::runs::Run;
use crate::values::{DateTime, Object, RecordId, SignedDuration, Value};
use crate::waits::lock;
use crate::*;

fn at() -> Value {
    DateTime::from_micros(1_000_000).unwrap().into()
}

fn minutes(count: i64) -> Value {
    SignedDuration::from_micros(count * 60_000_000).into()
}

fn number(call: Run) -> tokio::task::JoinHandle<Result<Value>> {
    tokio::spawn(call.value())
}

fn home(client: &Client) -> Arc<Node> {
    client.nodes().home().unwrap()
}

fn cause(error: &Error) -> &Error {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref()).expect("no cause")
}

tests! {
    async fn c1_c51_one_connection_for_all_and_another_behind_it() {
        let node = Peer::listen().await;
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let report = move |event: ConnectionEvent| {
            let text = match event {
                ConnectionEvent::Connected { version, .. } => format!("connected {version}"),
                ConnectionEvent::Reconnected { version, .. } => format!("reconnected {version}"),
                ConnectionEvent::Lost { cause, .. } => format!("lost {}", cause.unwrap().code().unwrap()),
            };
            lock(&seen).push(text);
            assert!(lock(&seen).len() != 1, "a report that panics disturbs nothing");
        };
        let client = builder(&node.address).on_connection(report).build().unwrap();
        for round in 0..2 {
            let asked: Vec<_> = (0..20).map(|_| number(client.run("RETURN 1"))).collect();
            let mut one = node.greet().await;
            for _ in 0..20 {
                let run = one.wants(Kind::Run).await;
                one.answer(run.id, 1, 1).await;
            }
            for call in asked {
                assert_eq!(outcome(call).await.unwrap(), Value::Int(1));
            }
            one.refuse(0, "Busy").await;
            until(|| lock(&events).len() == 2 * round + 2).await;
        }
        client.close().await;
        assert_eq!(*lock(&events), ["connected 0", "lost Busy", "reconnected 0", "lost Busy"]);
    }

    async fn c2_addresses() {
        let given = |address: &str| Client::builder(address).build().map(|client| client.nodes().given.clone());
        assert_eq!(given("a").unwrap(), "a:8001");
        assert_eq!(given(":9").unwrap(), "127.0.0.1:9");
        assert_eq!(given("[::1]:9, b:8,b:8").unwrap(), "[::1]:9, b:8");
        assert_eq!(Client::builder("a:1").address("b").build().unwrap().nodes().given, "a:1, b:8001");
        for wrong in ["a:b", "a:0", "a:65536", "::1", "[::1", "a:1:2", "[]x", "a:+1"] {
            assert!(given(wrong).unwrap_err().to_string().contains("is no address"), "{wrong}");
        }
        let many: Vec<String> = (1..=65).map(|port| format!("a:{port}")).collect();
        assert!(given(&many.join(",")).unwrap_err().to_string().contains("at most 64 nodes"));
        let error = Client::builder("a,b").token("t").build().unwrap_err();
        assert!(error.to_string().contains("a token is of one node"));
        assert!(Client::builder("a").token("t").user("root", "x").build().is_err());
        assert!(Client::builder("a").connect_timeout(Duration::ZERO).build().is_err());
    }

    async fn c3_a_search_goes_on_until_a_node_is_there() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = number(client.run("RETURN 1"));
        for _ in 0..3 {
            drop(node.accept().await);
        }
        node.greet().await.serves(1);
        assert_eq!(outcome(asked).await.unwrap(), Value::Int(1));
        client.close().await;
    }

    async fn c3_no_node_is_unreachable() {
        let bound = tokio::net::TcpSocket::new_v4().unwrap(); // its port is no other test's, and nothing listens there
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.local_addr().unwrap().to_string();
        let client = builder(&address).connect_timeout(Duration::from_millis(50)).build().unwrap();
        assert!(matches!(client.connect().await, Err(Error::Unreachable { .. })));
        client.close().await;
        client.close().await;
        assert!(matches!(client.run("RETURN 1").await, Err(Error::Closed)));
    }

    async fn c4_a_refused_sign_in_ends_the_search() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run("RETURN 1"));
        let mut one = node.accept().await;
        one.wants(Kind::Hello).await;
        one.refuse(0, "SignInRefused").await;
        assert!(failure(asked).await.is(Code::SignInRefused));
        client.close().await;
    }

    async fn c5_sockets_have_keep_alive_and_no_delay() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let connecting = tokio::spawn({ let client = client.clone(); async move { client.connect().await } });
        let one = node.greet().await;
        outcome(connecting).await.unwrap();
        // Its own port alone may be that of a closed connection to another peer too.
        let [own, peer] = [one.socket.peer_addr(), one.socket.local_addr()].map(|at| format!(":{:04X}", at.unwrap().port()));
        if let Ok(sockets) = std::fs::read_to_string("/proc/net/tcp") {
            let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let line = lines.find(|line| line[1].ends_with(&own) && line[2].ends_with(&peer)).unwrap();
            let (kind, left) = line[5].split_once(':').unwrap();
            assert_eq!(kind, "02"); // keep-alive
            assert!(i64::from_str_radix(left, 16).unwrap() <= 30 * 100); // in hundredths of a second
        }
        ends(client, one).await;
    }

    async fn c6_certificates_are_checked() {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let pem = made.cert.pem();
        let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let node = Peer::listen().await; // of 127.0.0.1, and not of localhost
        let client = builder(&node.address).tls(Tls::new().ca(pem.clone())).build().unwrap();
        let asked = number(client.run("RETURN 1"));
        let mut one = node.spoken_over(acceptor.accept(node.accept_socket().await).await.unwrap());
        one.greet().await;
        one.serves(1);
        assert_eq!(outcome(asked).await.unwrap(), Value::Int(1));
        client.close().await;
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
        let port = node.address.rsplit(':').next().unwrap();
        for (address, ca) in [(format!("localhost:{port}"), pem.clone()), (node.address.clone(), other)] {
            let wrong = builder(&address).tls(Tls::new().ca(ca)).build().unwrap();
            let connecting = tokio::spawn({ let wrong = wrong.clone(); async move { wrong.connect().await } });
            assert!(acceptor.accept(node.accept_socket().await).await.is_err());
            let error = failure(connecting).await;
            assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains("is not trusted"), "{error}");
            wrong.close().await;
        }
        let plain = Peer::listen().await;
        let wrong = builder(&plain.address).tls(Tls::new().ca(pem)).build().unwrap();
        let connecting = tokio::spawn({ let wrong = wrong.clone(); async move { wrong.connect().await } });
        let mut clear = plain.accept_socket().await;
        clear.write_all(&[0, 0, 0, 4, 0x93, 33, 0, 0xc0]).await.unwrap();
        assert!(failure(connecting).await.to_string().contains("no TLS is spoken"));
    }

    async fn c7_what_a_node_is_too_old_for_is_not_sent() {
        let mut node = Peer::listen().await;
        node.minor = 0;
        let client = client_of(&node.address);
        let first = begin(client.run("SELECT 1").after(7));
        let mut one = node.accept().await;
        assert_eq!(one.wants(Kind::Hello).await.get("minor"), Value::Array(vec![0.into(), 10.into()]));
        one.welcome(0).await;
        let errors = [
            (failure(first).await, 7),
            (client.run("SELECT 1").current().await.unwrap_err(), 8),
            (client.store_seal().unseal("secret").await.unwrap_err(), 6),
            (client.database("a", "b").watch("c").next().await.unwrap().unwrap_err(), 1),
        ];
        for (error, minor) in errors {
            assert!(error.is(Code::VersionNotSupported));
            let text = error.to_string();
            assert!(text.contains("version 0") && text.ends_with(&format!("came with {minor}")), "{text}");
        }
        let asked = begin(client.run("RETURN 1"));
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.text("script"), "RETURN 1");
        one.answer(run.id, 1, 1).await;
        outcome(asked).await.unwrap();
        ends(client, one).await;
    }

    async fn c8_what_does_not_fit_fails_its_request_and_other_bytes_the_connection() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let mut asked = begin(client.run("RETURN 1"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        one.change(run.id, &object([("type", "beat".into())])).await;
        let error = failure(asked).await;
        assert!(error.is_outcome_unknown() && matches!(cause(&error), Error::ProtocolBroken(_)), "{error}");
        asked = begin(client.run("RETURN 1"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        one.say(Kind::Pong, run.id, None).await; // that request alone fails
        assert!(matches!(failure(asked).await, Error::ProtocolBroken(_)));
        let odd = |name: &str, value: Value| {
            let mut found = result("value", Value::Null);
            if let Value::Object(fields) = &mut found {
                fields.insert(name.to_owned(), value);
            }
            answer_of(vec![found], 1)
        };
        for body in [
            object([("results", 1.into()), ("seq", 1.into())]),
            object([("results", Value::Array(vec![1.into()])), ("seq", 1.into())]),
            object([("results", Value::Array(vec![])), ("seq", "1".into())]),
            object([("results", Value::Array(vec![]))]),
            object([("results", Value::Array(vec![])), ("seq", 1.into()), ("epoch", "x".into())]),
            odd("changed", "x".into()),
            odd("took", 1.into()),
        ] {
            asked = begin(client.run("RETURN 1"));
            let run = one.wants(Kind::Run).await;
            one.say(Kind::Answer, run.id, Some(&body)).await;
            let error = failure(asked).await;
            assert!(matches!(error, Error::ProtocolBroken(_)), "{error}");
        }
        one.say(Kind::Pong, 99, None).await; // its id is not open
        asked = begin(client.run("RETURN 1"));
        one.wants(Kind::Run).await;
        one.socket.write_all(&[1, 0, 0, 1]).await.unwrap();
        let error = failure(asked).await;
        assert!(error.is_outcome_unknown() && cause(&error).to_string().contains("a frame of 16777217 bytes"), "{error}");
        client.close().await;
    }

    async fn c9_c47_nothing_that_is_printed_holds_a_secret() {
        let secret = "open-sesame";
        let node = Peer::listen().await;
        let given = builder(&node.address).user("root", secret);
        let mut printed = vec![format!("{given:?}")];
        let client = given.build().unwrap();
        let db = client.database("a", "b");
        let seal = client.store_seal();
        let unsealing = tokio::spawn({ let seal = seal.clone(); async move { seal.unseal(secret).await } });
        let mut one = node.greet().await;
        assert_eq!(one.wants(Kind::Vault).await.text("passphrase"), secret);
        drop(one);
        let unknown = failure(unsealing).await;
        assert!(unknown.is_outcome_unknown());
        let vault = db.vault("c");
        let writing = vault.write("my id", secret);
        printed.push(format!("{writing:?}"));
        let writing = begin(writing);
        let mut two = node.greet().await;
        let run = two.wants(Kind::Run).await;
        assert_eq!(run.text("script"), "WRITE $id IN VAULT `c` VALUE $value");
        assert_eq!(run.get("params"), value_of([("id", "my id".into()), ("value", secret.into())]));
        two.refuse(run.id, "Sealed").await;
        let refused = failure(writing).await;
        let revealing = begin(vault.reveal("my id"));
        let run = two.wants(Kind::Run).await;
        let record = [("id", "my id".into()), ("value", secret.into()), ("version", 1.into()), ("at", at())];
        two.answer(run.id, value_of(record), 2).await;
        let revealed = outcome(revealing).await.unwrap();
        assert_eq!(revealed.decode::<String>().unwrap(), secret);
        let other = Client::builder(node.address.as_str()).token(secret);
        let run = client.run("RETURN $a").bind("a", secret);
        printed.push(format!("{client:?} {other:?} {db:?} {vault:?} {seal:?} {run:?} {revealed:?} {revealed:#?}"));
        printed.push(format!("{unknown} {unknown:?} {refused} {refused:?} {:?}", other.build().unwrap()));
        for text in printed {
            assert!(!text.contains(secret), "{text}");
        }
        ends(client, two).await;
    }

    async fn c10_a_session_that_ended() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let together: Vec<_> = (0..8).map(|_| number(client.run("RETURN 1"))).collect();
        let mut one = node.greet().await;
        for _ in 0..8 {
            let run = one.wants(Kind::Run).await;
            one.refuse(run.id, "SessionEnded").await;
        }
        let auth = one.wants(Kind::Auth).await; // one for all of them
        assert_eq!(auth.text("password"), "secret");
        one.welcome(auth.id).await;
        for _ in 0..8 {
            let run = one.wants(Kind::Run).await;
            one.answer(run.id, 1, 3).await;
        }
        for call in together {
            assert_eq!(outcome(call).await.unwrap(), Value::Int(1));
        }
        let mut asked = begin(client.run("CREATE a; RETURN 1"));
        let run = one.wants(Kind::Run).await;
        one.refuse_with(run.id, "SessionEnded", [("committed", 4.into())], false).await;
        assert!(failure(asked).await.is(Code::SessionEnded));
        asked = begin(client.run("RETURN 1"));
        let run = one.wants(Kind::Run).await;
        one.refuse(run.id, "SessionEnded").await;
        let auth = one.wants(Kind::Auth).await;
        one.refuse(auth.id, "SignInRefused").await;
        assert!(failure(asked).await.is(Code::SignInRefused));
        ends(client, one).await;
    }

    async fn c11_ids_are_counted_on_each_connection() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        for _ in 0..2 {
            let running = begin(client.run("RETURN 1"));
            let mut one = node.greet().await;
            let run = one.wants(Kind::Run).await;
            one.answer(run.id, 1, 1).await;
            outcome(running).await.unwrap();
            let cache = client.database("a", "b").cache("c");
            let getting = tokio::spawn(async move { cache.get::<Value>("k").await });
            let get = one.wants(Kind::Kv).await;
            one.say(Kind::Value, get.id, None).await;
            assert_eq!(outcome(getting).await.unwrap(), None);
            assert_eq!([run.id, get.id], [1, 2]);
            let conn = home(&client).conn().unwrap();
            drop(one);
            conn.ended().await;
        }
        client.close().await;
    }

    async fn c12_requests_do_not_wait_for_each_other_and_leave_in_one_write() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked: Vec<_> = (0..500).map(|n| number(client.run(format!("RETURN {n}")))).collect();
        let mut one = node.greet().await;
        let before = one.reads();
        let mut runs = Vec::new();
        for n in 0..500 {
            let run = one.wants(Kind::Run).await;
            assert_eq!(run.text("script"), format!("RETURN {n}"));
            runs.push(run);
        }
        let reads = one.reads() - before;
        assert!(reads <= 2, "they came in {reads} reads"); // of 64 KiB at most
        for run in runs.into_iter().rev() {
            let script = run.get("script");
            one.answer(run.id, script, 2).await;
        }
        for (n, call) in asked.into_iter().enumerate() {
            assert_eq!(outcome(call).await.unwrap(), Value::from(format!("RETURN {n}")));
        }
        ends(client, one).await;
    }

    // A peer that reads nothing: what stands in the buffers of both systems is much less than one request.
    async fn c13_c14_c18_what_is_not_written() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let connecting = tokio::spawn({ let client = client.clone(); async move { client.connect().await } });
        let first = node.greet().await;
        outcome(connecting).await.unwrap();
        let conn = home(&client).conn().unwrap();
        let long = " ".repeat(15 << 20);
        let written = begin(client.run(format!("CREATE written{long}")));
        until(|| conn.exchange().written_calls() == 1).await;
        let queued = number(client.run(format!("CREATE queued{long}")));
        until(|| conn.exchange().open_calls() == 2).await;
        let waiting = number(client.run("CREATE waiting"));
        let cancelled = begin(client.run("CREATE cancelled"));
        until(|| conn.exchange().open_calls() == 4).await;
        assert_eq!(conn.exchange().written_calls(), 1);
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        assert_eq!(conn.exchange().open_calls(), 3);
        drop(first);
        assert!(failure(written).await.is_outcome_unknown());
        let mut second = node.greet().await;
        for name in ["CREATE queued", "CREATE waiting"] {
            let run = second.wants(Kind::Run).await;
            assert_eq!(run.text("script").trim(), name);
            second.answer(run.id, name, 1).await;
        }
        assert_eq!(outcome(queued).await.unwrap(), Value::from("CREATE queued"));
        assert_eq!(outcome(waiting).await.unwrap(), Value::from("CREATE waiting"));
        ends(client, second).await;
    }

    async fn c14_a_dropped_future_cancels_its_request() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run("SLOW"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        asked.abort();
        assert_eq!(one.wants(Kind::Cancel).await.id, run.id);
        one.refuse(run.id, "Cancelled").await; // dropped
        let taking = begin(client.database("a", "b").topic("c").group("d").take().wait(Duration::from_secs(9)));
        let take = one.wants(Kind::Topic).await;
        taking.abort();
        assert_eq!(one.wants(Kind::Cancel).await.id, take.id);
        let cache = client.database("a", "b").cache("c");
        let getting = tokio::spawn(async move { cache.get::<Value>("k").await });
        let get = one.wants(Kind::Kv).await;
        getting.abort(); // CANCEL does not reach a KV
        assert!(getting.await.unwrap_err().is_cancelled());
        let mut watch = client.database("a", "b").watch("t");
        let opening = tokio::spawn(async move { watch.next().await });
        let feed = one.wants(Kind::Watch).await;
        opening.abort();
        assert_eq!(one.wants(Kind::Unwatch).await.id, feed.id);
        one.say(Kind::Value, get.id, None).await;
        let mut unsent = Box::pin(client.run("CREATE b").into_future());
        assert!(futures_core::future::TryFuture::try_poll(unsent.as_mut(), &mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        drop(unsent); // in the turn of its call
        let next = number(client.run("RETURN 2"));
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.text("script"), "RETURN 2");
        one.answer(run.id, 2, 1).await;
        assert_eq!(outcome(next).await.unwrap(), Value::Int(2));
        ends(client, one).await;
    }

    async fn c15_a_timeout_is_the_nodes_first() {
        let node = Peer::listen().await;
        let client = builder(&node.address).timeout(Duration::from_secs(3600)).build().unwrap();
        let asked = begin(client.run("SLOW"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.get("timeout"), minutes(60));
        one.refuse(run.id, "StatementTimeout").await;
        assert!(failure(asked).await.is(Code::StatementTimeout));
        let taking = begin(client.database("a", "b").topic("c").group("d").take().wait(Duration::from_secs(60)));
        let take = one.wants(Kind::Topic).await;
        assert_eq!([take.get("timeout"), take.get("wait")], [minutes(61), minutes(1)]);
        one.refuse(take.id, "Unknown").await;
        assert!(failure(taking).await.is(Code::Unknown));
        let asked = begin(client.run("SLOW").timeout(Duration::from_micros(1)));
        let run = one.wants(Kind::Run).await;
        tokio::time::pause(); // the five seconds pass at once
        assert!(failure(asked).await.is_outcome_unknown());
        tokio::time::resume();
        assert_eq!(one.wants(Kind::Cancel).await.id, run.id);
        ends(client, one).await;
    }

    async fn c16_a_peer_that_vanished() {
        let node = Peer::listen().await;
        let quiet = Duration::from_millis(1);
        let pulse = Pulse { quiet, answer: PATIENCE, grace: PATIENCE, ..Pulse::default() };
        let mut client = builder(&node.address).pulse(pulse).build().unwrap();
        let asked = number(client.run("SLOW"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        let ping = one.wants(Kind::Ping).await;
        one.say(Kind::Pong, ping.id, None).await; // it is there as long as it answers
        one.answer(run.id, 1, 2).await;
        assert_eq!(outcome(asked).await.unwrap(), Value::Int(1));
        ends(client, one).await;
        client = builder(&node.address).pulse(Pulse { answer: quiet, ..pulse }).build().unwrap();
        let lost = begin(client.run("SLOW"));
        let _one = node.greet().await;
        let error = failure(lost).await;
        assert!(error.is_outcome_unknown() && cause(&error).to_string().contains("PING"), "{error}");
        client.close().await;
    }

    async fn c16_no_ping_behind_a_large_request() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run(format!("RETURN 1{}", " ".repeat(5000))));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        let later = Instant::now() + Duration::from_secs(60);
        let conn = home(&client).conn().unwrap();
        assert_eq!(conn.exchange().look(later), Look::At(later + Duration::from_secs(20)));
        one.answer(run.id, 1, 1).await;
        outcome(asked).await.unwrap();
        ends(client, one).await; // a PING would have come before BYE, and been answered behind it
    }

    async fn c17_close_ends_what_only_waits() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let topic = client.database("a", "b").topic("c");
        let reading = begin(topic.read().wait(Duration::from_secs(60)));
        let mut one = node.greet().await;
        let read = one.wants(Kind::Run).await;
        let slow = number(client.run("CREATE slow"));
        let run = one.wants(Kind::Run).await;
        let closing = tokio::spawn({ let client = client.clone(); async move { client.close().await } });
        assert_eq!(one.wants(Kind::Cancel).await.id, read.id);
        one.refuse(read.id, "Cancelled").await;
        assert!(matches!(failure(reading).await, Error::Closed));
        assert!(matches!(client.run("RETURN 1").await, Err(Error::Closed)));
        one.answer(run.id, "done", 3).await;
        assert_eq!(outcome(slow).await.unwrap(), Value::from("done"));
        one.wants(Kind::Bye).await;
        drop(one);
        closing.await.unwrap();
        client.close().await;
    }

    async fn c17_the_last_handle_says_bye() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run("RETURN 1"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        one.answer(run.id, 1, 1).await;
        outcome(asked).await.unwrap();
        drop(client);
        one.wants(Kind::Bye).await;
    }

    async fn c19_c20_what_was_sent_is_sent_again_only_if_it_is_repeatable() {
        for repeatable in [false, true] {
            let node = Peer::listen().await;
            let client = client_of(&node.address);
            let run = client.run("CREATE a");
            let mut asked = number(if repeatable { run.repeatable() } else { run });
            let mut first = node.greet().await;
            first.wants(Kind::Run).await;
            drop(first);
            if !repeatable {
                assert!(failure(asked).await.is_outcome_unknown());
                asked = number(client.run("RETURN 2"));
            }
            let mut second = node.greet().await;
            let run = second.wants(Kind::Run).await;
            assert_eq!(run.text("script"), if repeatable { "CREATE a" } else { "RETURN 2" });
            second.answer(run.id, 2, 3).await;
            assert_eq!(outcome(asked).await.unwrap(), Value::Int(2));
            ends(client, second).await;
        }
    }

    async fn c20_the_ninth_break_is_reported() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run("RETURN 1").repeatable());
        for _ in 0..9 {
            node.greet().await.wants(Kind::Run).await;
        }
        assert!(failure(asked).await.is_outcome_unknown());
        client.close().await;
    }

    async fn c21_the_nodes_bye() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let slow = number(client.run("SLOW"));
        let mut first = node.greet().await;
        let held = first.wants(Kind::Run).await;
        let crossing = number(client.run("CROSSING"));
        let crossed = first.wants(Kind::Run).await;
        first.say(Kind::Bye, 0, None).await;
        first.refuse(crossed.id, "Draining").await;
        first.wants(Kind::Bye).await;
        let mut second = node.greet().await;
        let again = second.wants(Kind::Run).await;
        assert_eq!(again.text("script"), "CROSSING");
        second.answer(again.id, "elsewhere", 4).await;
        assert_eq!(outcome(crossing).await.unwrap(), Value::from("elsewhere"));
        first.answer(held.id, "in time", 3).await;
        assert_eq!(outcome(slow).await.unwrap(), Value::from("in time"));
        drop(first);
        ends(client, second).await;
    }

    async fn c22_c49_a_refusal_is_an_answer_with_all_of_its_fields() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run("CREATE a; CREATE b").repeatable());
        let mut one = node.greet().await;
        let error = value_of([
            ("code", "OfALaterVersion".into()),
            ("message", "no".into()),
            ("status", 418.into()),
            ("retry", true.into()),
            ("detail", value_of([("committed", 7.into())])),
            ("request", "r-1".into()),
            ("statement", 2.into()),
            ("line", 3.into()),
            ("column", 4.into()),
        ]);
        let run = one.wants(Kind::Run).await;
        let body = object([("error", error), ("results", Value::Array(vec![result("value", "a".into())]))]);
        one.say(Kind::Error, run.id, Some(&body)).await;
        let error = failure(asked).await;
        assert!(error.is("OfALaterVersion".into()) && error.is_retryable() && !error.is_outcome_unknown());
        assert_eq!(error.to_string(), "OfALaterVersion: no (statement 2, line 3, column 4)");
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.message.as_str(), refusal.status, refusal.committed()), ("no", 418, 7));
        assert_eq!(refusal.request.as_deref(), Some("r-1"));
        assert_eq!([refusal.statement, refusal.line, refusal.column], [Some(2), Some(3), Some(4)]);
        assert_eq!(refusal.results[0].value, Value::from("a"));
        assert_eq!((refusal.results[0].took, refusal.results[0].changed), (Duration::from_micros(1), None));
        let draining = begin(client.run("RETURN 1").repeatable());
        let run = one.wants(Kind::Run).await;
        one.refuse(run.id, "Draining").await; // without a BYE
        assert!(failure(draining).await.is(Code::Draining));
        ends(client, one).await;
    }

    async fn c23_the_nodes_last_word_is_the_cause_of_the_end() {
        for code in ["Draining", "NotWritable", "SessionEnded"] {
            let node = Peer::listen().await;
            let client = client_of(&node.address);
            let asked = begin(client.run("CREATE a"));
            let mut one = node.greet().await;
            one.wants(Kind::Run).await;
            one.refuse(0, code).await;
            let error = failure(asked).await;
            assert!(error.is_outcome_unknown() && cause(&error).is(code.into()));
            let repeatable = number(client.run("SELECT 1").repeatable());
            let mut two = node.greet().await;
            two.wants(Kind::Run).await;
            two.refuse(0, code).await;
            let mut three = node.greet().await;
            let run = three.wants(Kind::Run).await;
            three.answer(run.id, "again", 2).await;
            assert_eq!(outcome(repeatable).await.unwrap(), Value::from("again"));
            ends(client, three).await;
        }
    }

    async fn c24_c25_the_leader_is_followed() {
        let (mut old, lead) = (Peer::listen().await, Peer::listen().await);
        old.writable = false;
        old.leader = vec![lead.address.clone()];
        let client = client_of(&format!("{}, {}", old.address, lead.address));
        let mut asked = number(client.run("CREATE a"));
        old.greet().await.serves("was the follower");
        let mut one = lead.greet().await;
        let run = one.wants(Kind::Run).await;
        one.answer(run.id, "led", 5).await;
        assert_eq!(outcome(asked).await.unwrap(), Value::from("led"));
        asked = number(client.run("CREATE b")); // the leader changes, for a moment to no node
        let run = one.wants(Kind::Run).await;
        one.refuse_with(run.id, "NotWritable", [("leader", Value::Array(vec![]))], false).await;
        one.serves("was the leader");
        assert_ne!(outcome(asked).await.unwrap(), Value::from("led"));
        client.close().await;
    }

    async fn c24_one_node_is_asked_whatever_its_role() {
        let mut node = Peer::listen().await;
        node.writable = false;
        node.leader = vec!["127.0.0.1:1".to_owned()];
        let client = client_of(&node.address);
        let asked = begin(client.run("CREATE a"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        one.refuse_with(run.id, "NotWritable", [("leader", texts(&["127.0.0.1:1"]))], false).await;
        assert!(failure(asked).await.is(Code::NotWritable));
        ends(client, one).await;
    }

    async fn c26_c27_reads_anywhere_come_behind_what_was_seen() {
        let (lead, mut other) = (Peer::listen().await, Peer::listen().await);
        other.writable = false;
        other.leader = vec![lead.address.clone()];
        let client = builder(&format!("{},{}", lead.address, other.address)).reads(Reads::Any).build().unwrap();
        let written = begin(client.run("CREATE a"));
        let mut one = lead.greet().await;
        let run = one.wants(Kind::Run).await;
        one.answer(run.id, 1, 41).await;
        outcome(written).await.unwrap();
        one.serves("lead");
        assert_eq!(client.query::<String>("SELECT 1").await.unwrap(), "lead"); // the other is connected meanwhile
        let mut two = other.greet().await;
        until(|| client.nodes().all().iter().all(|node| node.usable().is_some())).await;
        let reads: Vec<_> = (0..4).map(|_| number(client.run("SELECT 1"))).collect();
        for _ in 0..2 {
            let run = two.wants(Kind::Run).await;
            assert_eq!(run.get("after"), Value::Int(41));
            let detail = [("after", 41.into()), ("seq", 40.into())];
            two.refuse_with(run.id, "StatementTimeout", detail, false).await; // it is behind: home is asked
        }
        for read in reads {
            assert_eq!(outcome(read).await.unwrap(), Value::from("lead"));
        }
        assert_eq!(client.query::<String>("SELECT 1").await.unwrap(), "lead"); // it is left alone
        ends(client, two).await;
    }

    async fn c26_a_dropped_change_is_read_at_the_leader() {
        let (lead, other) = (Peer::listen().await, Peer::listen().await);
        let client = builder(&format!("{},{}", lead.address, other.address)).reads(Reads::Any).build().unwrap();
        let changing = begin(client.run("CREATE a"));
        let mut one = lead.greet().await;
        one.wants(Kind::Run).await;
        assert!(client.reads_anywhere());
        changing.abort();
        one.wants(Kind::Cancel).await;
        assert!(!client.reads_anywhere());
        let asked = begin(client.run("RETURN 1"));
        let run = one.wants(Kind::Run).await;
        one.answer(run.id, 1, 5).await;
        outcome(asked).await.unwrap();
        assert!(client.reads_anywhere());
        ends(client, one).await;
    }

    async fn c28_a_moment_is_read_where_it_was_made() {
        let (maker, lead) = (Peer::listen().await, Peer::listen().await);
        let client = client_of(&format!("{},{}", maker.address, lead.address));
        let making = begin(client.database("a", "b").moment());
        let mut one = maker.greet().await;
        let run = one.wants(Kind::Run).await;
        assert_eq!((run.text("moment"), run.get("keep")), ("new", minutes(1)));
        let mut body = answer_of(vec![], 4);
        body.insert("moment".into(), "m-1".into());
        one.say(Kind::Answer, run.id, Some(&body)).await;
        let moment = outcome(making).await.unwrap();
        let written = begin(client.run("CREATE a"));
        let run = one.wants(Kind::Run).await;
        one.refuse_with(run.id, "NotWritable", [("leader", texts(&[&lead.address]))], false).await;
        let mut two = lead.greet().await;
        let run = two.wants(Kind::Run).await;
        two.answer(run.id, 1, 5).await;
        outcome(written).await.unwrap();
        let read = number(moment.run("SELECT 1"));
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.text("moment"), "m-1");
        one.answer(run.id, "then", 4).await;
        assert_eq!(outcome(read).await.unwrap(), Value::from("then"));
        one.serves(1);
        ends(client, two).await;
    }

    async fn c29_a_node_of_another_store_is_read_no_more() {
        let (lead, mut other) = (Peer::listen().await, Peer::listen().await);
        other.writable = false;
        let client = builder(&format!("{},{}", lead.address, other.address)).reads(Reads::Any).build().unwrap();
        let written = begin(client.run("CREATE a"));
        let mut one = lead.greet().await;
        let run = one.wants(Kind::Run).await;
        one.answer(run.id, 1, 4).await;
        outcome(written).await.unwrap();
        one.serves("lead");
        assert_eq!(client.query::<String>("SELECT 1").await.unwrap(), "lead");
        let mut two = other.greet().await;
        until(|| client.nodes().all().iter().all(|node| node.usable().is_some())).await;
        let reads = [number(client.run("SELECT 1")), number(client.run("SELECT 1"))];
        let run = two.wants(Kind::Run).await;
        let mut body = answer_of(vec![], 4);
        body.insert("store".into(), "another".into());
        two.say(Kind::Answer, run.id, Some(&body)).await;
        let mut broken = 0;
        for read in reads {
            match outcome(read).await {
                Ok(found) => assert_eq!(found, Value::from("lead")),
                Err(error) => {
                    assert!(matches!(error, Error::ProtocolBroken(_)), "{error}");
                    broken += 1;
                }
            }
        }
        assert_eq!(broken, 1);
        for _ in 0..4 {
            assert_eq!(client.query::<String>("SELECT 1").await.unwrap(), "lead");
        }
        ends(client, two).await;
    }

    async fn c31_a_request_that_is_too_large_is_not_sent() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run(" ".repeat(16 << 20)));
        let one = node.greet().await;
        let error = failure(asked).await;
        assert!(matches!(error, Error::InvalidArgument(_)) && error.to_string().contains("16777216"), "{error}");
        let error = client.run("RETURN $n").bind("n", f64::NAN).await.unwrap_err();
        assert!(error.to_string().starts_with("$n: "), "{error}");
        ends(client, one).await;
    }

    async fn c32_c33_a_request_names_its_place_and_its_values() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let db = client.database("shop", "main");
        let running = begin(db.run("RETURN $n").bind("n", "'; DELETE item"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        let params = value_of([("n", "'; DELETE item".into())]);
        let place = [("ns", "shop".into()), ("db", "main".into())];
        let mut wanted = object([("script", "RETURN $n".into()), ("params", params)]);
        wanted.extend(object(place.clone()));
        assert_eq!(run.body, wanted);
        one.answer(run.id, 1, 1).await;
        outcome(running).await.unwrap();
        let cache = db.cache("sessions");
        let getting = tokio::spawn(async move { cache.get::<Value>("k").await });
        let get = one.wants(Kind::Kv).await;
        let mut wanted = object([("op", "get".into()), ("space", "sessions".into()), ("key", "k".into())]);
        wanted.extend(object(place));
        assert_eq!(get.body, wanted);
        one.say(Kind::Value, get.id, None).await;
        outcome(getting).await.unwrap();
        for wrong in ["", "1a", "a b", "a`", &"x".repeat(65)] {
            let errors = [
                db.topic(wrong).read().await.unwrap_err(),
                db.topic(wrong).publish(1).await.unwrap_err(),
                db.topic("t").group(wrong).take().await.unwrap_err(),
                db.cache(wrong).delete("k").await.unwrap_err(),
                db.vault(wrong).list().await.unwrap_err(),
                db.watch(wrong).next().await.unwrap().unwrap_err(),
                client.database(wrong, "main").run("RETURN 1").await.unwrap_err(),
                client.backup().namespace(wrong).to_writer(&mut Vec::new()).await.unwrap_err(),
            ];
            for error in errors {
                assert!(error.to_string().contains("is no name"), "{error}");
            }
        }
        ends(client, one).await;
    }

    async fn c34_rows_come_in_pages() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let db = client.database("a", "b");
        let mut rows = db.rows::<Object>("SELECT * FROM item WHERE n > $n -- all").bind("n", 1).page(2);
        let reading = tokio::spawn(async move {
            let mut found = Vec::new();
            while let Some(row) = rows.next().await {
                found.push(row?["id"].clone());
            }
            Ok(found)
        });
        let mut one = node.greet().await;
        let id = |n: i64| Value::from(RecordId::new("item", n));
        let row = |n: i64| value_of([("id", id(n))]);
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.text("script"), "SELECT * FROM item \n WHERE ( n > $n -- all\n) ORDER BY id LIMIT $storeclient_rows");
        assert_eq!(run.get("params"), value_of([("n", 1.into()), ("storeclient_rows", 2.into())]));
        one.answer(run.id, Value::Array(vec![row(1), row(2)]), 1).await;
        let run = one.wants(Kind::Run).await;
        let wanted = "SELECT * FROM item \n WHERE id > $storeclient_after AND ( n > $n -- all\n) ORDER BY id LIMIT $storeclient_rows";
        assert_eq!(run.text("script"), wanted);
        assert_eq!(run.get("params").get("storeclient_after"), Some(&id(2)));
        one.answer(run.id, Value::Array(vec![row(3)]), 1).await;
        assert_eq!(outcome(reading).await.unwrap(), [id(1), id(2), id(3)]);
        for wrong in [
            "UPDATE item",
            "SELECT 1",
            "SELECT VALUE a FROM item",
            "SELECT DISTINCT a FROM item",
            "SELECT * FROM ONLY item",
            "SELECT * FROM item ORDER BY a",
            "SELECT * FROM item WHERE a = 1 LIMIT 5",
            "SELECT * FROM item GROUP ALL",
            "SELECT * FROM item; DELETE item",
        ] {
            let error = db.rows::<Object>(wrong).next().await.unwrap().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{wrong}: {error}");
        }
        for right in ["SELECT id, limit FROM item WHERE limit = 1 AND a IN (SELECT VALUE b FROM c)", "select * from item where `order` = 'LIMIT 1'"] {
            let mut rows = db.rows::<Object>(right);
            let reading = tokio::spawn(async move { rows.next().await });
            let run = one.wants(Kind::Run).await;
            one.answer(run.id, Value::Array(vec![]), 1).await;
            assert!(reading.await.unwrap().is_none());
        }
        ends(client, one).await;
    }

    async fn c35_keys_and_leases() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let cache = client.database("a", "b").cache("c");
        let error = cache.set("k", ()).ttl(Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("longer than nothing"));
        let setting = begin(cache.set("k", ()));
        let mut one = node.greet().await;
        let set = one.wants(Kind::Kv).await;
        assert_eq!((set.text("op"), set.get("value")), ("set", Value::Null));
        one.value(set.id, [("written", true.into())]).await;
        outcome(setting).await.unwrap();
        let making = tokio::spawn({
            let cache = cache.clone();
            async move { cache.get_or_set::<String, _, Error>("k", Duration::from_secs(60), || async { Ok("made".into()) }).await }
        });
        for last in [false, true] {
            let get = one.wants(Kind::Kv).await;
            assert_eq!(get.text("op"), "get");
            one.say(Kind::Value, get.id, None).await; // behind the first set it is gone again
            let set = one.wants(Kind::Kv).await;
            let found = (set.text("op"), set.get("value"), set.text("if"), set.get("expire"));
            assert_eq!(found, ("set", "made".into(), "absent", minutes(1)));
            one.value(set.id, [("written", false.into())]).await;
            if last {
                let get = one.wants(Kind::Kv).await;
                one.value(get.id, [("value", "theirs".into()), ("ttl", Value::Null)]).await;
            }
        }
        assert_eq!(outcome(making).await.unwrap(), "theirs");

        let locking = begin(cache.lock("k", Duration::from_millis(3)).renew());
        let lock = one.wants(Kind::Kv).await;
        let holder = lock.text("holder").to_owned();
        assert!(holder.len() == 32 && holder.bytes().all(|one| one.is_ascii_hexdigit()), "{holder}");
        assert_eq!(lock.get("fence"), Value::None);
        let held = || [("held", true.into()), ("fence", 9.into()), ("until", at())];
        one.value(lock.id, held()).await;
        let lease = outcome(locking).await.unwrap().unwrap();
        let extends = |asked: &Asked| {
            let found = (asked.text("op"), asked.text("holder").to_owned(), asked.get("fence"), asked.get("expire"));
            assert_eq!(found, ("lock", holder.clone(), 9.into(), SignedDuration::from_micros(3000).into()));
        };
        let asked = one.wants(Kind::Kv).await;
        extends(&asked);
        one.value(asked.id, held()).await;
        extends(&one.wants(Kind::Kv).await);
        drop(one); // it goes on through an outage
        let mut one = node.greet().await;
        let asked = one.wants(Kind::Kv).await;
        extends(&asked);
        one.value(asked.id, [("held", false.into()), ("fence", Value::Null), ("until", Value::Null)]).await;
        lease.lost().await;
        assert!(!lease.extend().await.unwrap()); // neither asks the node
        assert!(!lease.release().await.unwrap());
        ends(client, one).await;
    }

    async fn c36_a_reader_that_follows_outlives_an_outage() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let mut messages = client.database("a", "b").topic("jobs").messages().follow();
        let mut next = tokio::spawn(async move { let found = messages.next().await; (messages, found) });
        let mut one = node.greet().await;
        let page = |position: i64| {
            Value::Array(vec![value_of([("position", position.into()), ("at", at()), ("headers", value_of([])), ("value", 1.into()), ("bytes", 9.into())])])
        };
        let run = one.wants(Kind::Run).await;
        one.refuse_with(run.id, "Busy", [], true).await; // before the first answer: it says that it passes
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.get("params"), value_of([("after", 0.into()), ("limit", 1000.into()), ("wait", minutes(1))]));
        one.answer(run.id, page(1), 1).await;
        let (mut messages, found) = next.await.unwrap();
        assert_eq!(found.unwrap().unwrap().position, 1);
        next = tokio::spawn(async move { let found = messages.next().await; (messages, found) });
        let run = one.wants(Kind::Run).await;
        one.refuse(run.id, "NotWritable").await;
        one.wants(Kind::Run).await;
        drop(one);
        let mut two = node.greet().await;
        let run = two.wants(Kind::Run).await;
        assert_eq!(run.get("params").get("after"), Some(&Value::Int(1)));
        two.answer(run.id, page(2), 1).await;
        let (mut messages, found) = next.await.unwrap();
        assert_eq!(found.unwrap().unwrap().position, 2);
        let ended = tokio::spawn(async move { (messages.next().await.unwrap(), messages.next().await.is_none()) });
        let run = two.wants(Kind::Run).await;
        two.refuse(run.id, "Unknown").await;
        let (error, is_over) = ended.await.unwrap();
        assert!(error.unwrap_err().is(Code::Unknown) && is_over);
        ends(client, two).await;
    }

    async fn c38_c39_c41_a_consumer_takes_ahead_and_acknowledges_together() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let consumer = client.database("a", "b").topic("jobs").group("workers").messages().prefetch(4).build();
        let first = tokio::spawn({ let consumer = consumer.clone(); async move { consumer.next().await } });
        let mut one = node.greet().await;
        let take = takes(&mut one, 4).await;
        one.value(take, [("messages", delivered(1, 4))]).await;
        let r1 = first.await.unwrap().unwrap().unwrap();
        let r2 = consumer.next().await.unwrap().unwrap();
        let take = takes(&mut one, 2).await; // half of them are left
        let acks = |delivery: &Delivery| { let delivery = delivery.clone(); tokio::spawn(async move { delivery.ack().await }) };
        let alone = acks(&r1);
        let ack = acked(&mut one, &["r1"]).await;
        let r3 = consumer.next().await.unwrap().unwrap();
        let together = [acks(&r2), acks(&r2), acks(&r3)]; // while one is under way
        tokio::task::yield_now().await;
        one.value(ack, [("acked", 1.into()), ("stale", 0.into()), ("stale_receipts", texts(&[]))]).await;
        assert!(outcome(alone).await.unwrap());
        let ack = acked(&mut one, &["r2", "r2", "r3"]).await;
        one.value(ack, [("acked", 1.into()), ("stale", 2.into()), ("stale_receipts", texts(&["r2", "r3"]))]).await;
        let mut found = Vec::new();
        for call in together {
            found.push(outcome(call).await.unwrap());
        }
        assert_eq!(found, [true, false, false]); // of a receipt twice the first counts
        assert_eq!(consumer.stale(), 2);
        let broken = acks(&consumer.next().await.unwrap().unwrap()); // a stale one may be its own
        acked(&mut one, &["r4"]).await;
        drop(one);
        let mut one = node.greet().await;
        for _ in 0..2 {
            let asked = one.wants(Kind::Topic).await; // in no order
            match asked.text("op") {
                "take" => one.value(asked.id, [("messages", delivered(5, 3))]).await,
                _ => one.value(asked.id, [("acked", 0.into()), ("stale", 1.into()), ("stale_receipts", texts(&["r4"]))]).await,
            }
        }
        assert!(failure(broken).await.is_outcome_unknown());
        consumer.next().await.unwrap().unwrap();
        assert!(take > 0);
        let take = takes(&mut one, 2).await;
        let stopped = tokio::spawn({ let consumer = consumer.clone(); async move { consumer.stop().await } });
        assert_eq!(one.wants(Kind::Cancel).await.id, take);
        one.value(take, [("messages", delivered(8, 1))]).await; // it was quick enough
        let back = one.wants(Kind::Topic).await;
        assert_eq!((back.text("op"), back.get("receipts")), ("nack", texts(&["r6", "r7", "r8"])));
        assert_eq!(back.get("delay"), Value::Duration(SignedDuration::default()));
        one.value(back.id, [("nacked", 3.into()), ("stale", 0.into()), ("stale_receipts", texts(&[]))]).await;
        outcome(stopped).await.unwrap();
        assert!(consumer.next().await.is_none());
        ends(client, one).await;
    }

    async fn c41_the_last_handle_of_a_consumer_gives_back() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let consumer = client.database("a", "b").topic("jobs").group("workers").messages().prefetch(3).build();
        let first = tokio::spawn(async move { consumer.next().await });
        let mut one = node.greet().await;
        let take = takes(&mut one, 3).await;
        one.value(take, [("messages", delivered(1, 3))]).await;
        assert!(first.await.unwrap().is_some()); // and with it the consumer is dropped
        let back = one.wants(Kind::Topic).await;
        assert_eq!((back.text("op"), back.get("receipts")), ("nack", texts(&["r2", "r3"])));
        one.value(back.id, [("nacked", 2.into()), ("stale", 0.into()), ("stale_receipts", texts(&[]))]).await;
        ends(client, one).await;
    }

    async fn c40_done_is_one_transaction() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let group = client.database("a", "b").topic("jobs").group("workers");
        let taking = begin(group.take());
        let mut first = node.greet().await;
        let take = first.wants(Kind::Topic).await;
        first.value(take.id, [("messages", delivered(1, 1))]).await;
        let message = outcome(taking).await.unwrap().remove(0);
        let done = begin(message.done("CREATE a;\nCREATE b").bind("n", 1));
        let before = "BEGIN; LET $storeclient_receipt_ack = ACK `jobs` AS `workers` RECEIPTS [$storeclient_receipt]; \
            IF $storeclient_receipt_ack.stale > 0 { THROW 'storeclient: the receipt is stale' }; ";
        first.wants(Kind::Run).await;
        drop(first); // twice does no harm
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        assert_eq!(run.text("script"), format!("{before}CREATE a;\nCREATE b\n;COMMIT"));
        assert_eq!(run.get("params"), value_of([("n", 1.into()), ("storeclient_receipt", "r1".into())]));
        let results = ["none", "none", "none", "rows", "none"].map(|kind| result(kind, Value::Null));
        one.answer_all(run.id, results.to_vec(), 1).await;
        assert_eq!(outcome(done).await.unwrap().unwrap().results.len(), 1);
        let error = message.done("CREATE a").bind("storeclient_receipt", "x").await.unwrap_err();
        assert!(error.to_string().contains("names its own parameter so"));
        let stale = begin(message.done("CREATE a"));
        let run = one.wants(Kind::Run).await;
        one.refuse_with(run.id, "Thrown", [("value", "storeclient: the receipt is stale".into())], false).await;
        assert_eq!(outcome(stale).await.unwrap(), None);
        let wrong = begin(message.done("CREAT a"));
        let run = one.wants(Kind::Run).await;
        let error = value_of([
            ("code", "BadRequest".into()),
            ("message", "no".into()),
            ("status", 400.into()),
            ("retry", false.into()),
            ("statement", 4.into()),
            ("line", 1.into()),
            ("column", (before.len() as i64 + 3).into()),
        ]);
        one.say(Kind::Error, run.id, Some(&object([("error", error)]))).await;
        let error = failure(wrong).await;
        let refusal = error.refusal().unwrap();
        assert_eq!([refusal.statement, refusal.line, refusal.column], [Some(1), Some(1), Some(3)]);
        ends(client, one).await;
    }

    async fn c41_a_consumer_extends_what_it_holds() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let consumer = client.database("a", "b").topic("jobs").group("workers").messages().prefetch(2).extend().build();
        let first = tokio::spawn({ let consumer = consumer.clone(); async move { consumer.next().await } });
        let mut one = node.greet().await;
        let deadline = Value::from(SignedDuration::from_micros(3000));
        for _ in 0..2 {
            let asked = one.next().await; // TAKE and INFO, in no order
            if asked.kind == Kind::Run {
                assert_eq!(asked.text("script"), "INFO FOR GROUP `workers` ON `jobs`");
                one.answer(asked.id, value_of([("deadline", deadline.clone())]), 1).await;
            } else {
                one.value(asked.id, [("messages", delivered(1, 2))]).await;
            }
        }
        let message = first.await.unwrap().unwrap().unwrap();
        let mut seen = 0;
        while seen < 2 {
            let asked = one.wants(Kind::Topic).await; // of the one that was given out, and the one that was not
            if asked.text("op") == "take" {
                continue;
            }
            assert_eq!((asked.text("op"), asked.get("by")), ("extend", deadline.clone()));
            let receipts = asked.get("receipts");
            let all = receipts.as_array().unwrap().len() == 2;
            seen += usize::from(all);
            let stale = if seen == 2 { receipts } else { texts(&[]) };
            one.value(asked.id, [("extended", 0.into()), ("stale", 0.into()), ("stale_receipts", stale)]).await;
        }
        one.serves(1);
        until(|| consumer.held() == 0).await; // they are forgotten
        assert_eq!(message.receipt(), "r1");
        consumer.stop().await.unwrap();
        client.close().await;
    }

    async fn c42_c43_c44_a_feed_comes_back_where_it_was() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let watch = client.database("shop", "main").watch("item").condition("a > 1");
        let next = |mut watch: Watch| tokio::spawn(async move { let found = watch.next().await.unwrap(); (watch, found) });
        let mut asking = next(watch);
        let part = |seq: i64, number: i64, of: i64, name: &str| {
            let change = value_of([
                ("action", "update".into()),
                ("id", RecordId::new("item", name).into()),
                ("value", value_of([("n", name.into())])),
            ]);
            object([
                ("type", "commit".into()), ("seq", seq.into()), ("epoch", 1.into()), ("at", at()), ("by", "ana".into()),
                ("reason", Value::Null), ("part", number.into()), ("of", of.into()), ("changes", Value::Array(vec![change])),
            ])
        };
        let mut one = node.greet().await;
        let asked = one.wants(Kind::Watch).await;
        one.change(asked.id, &opened(20, 7)).await;
        assert_eq!((asked.text("where"), asked.get("from")), ("a > 1", Value::None));
        one.change(asked.id, &part(8, 1, 2, "a")).await;
        one.change(asked.id, &part(8, 2, 2, "b")).await;
        let (watch, commit) = asking.await.unwrap();
        let commit = commit.unwrap();
        let names: Vec<Object> = commit.changes.iter().map(|change| change.decode().unwrap().unwrap()).collect();
        assert_eq!(names, [object([("n", "a".into())]), object([("n", "b".into())])]);
        let position = |seq, epoch| Position { seq, store: Some("s".into()), epoch: Some(epoch) };
        assert_eq!((commit.by.as_deref(), &commit.position), (Some("ana"), &position(8, 1)));
        assert_eq!(watch.position(), Some(position(7, 1))); // the next was not asked for
        asking = next(watch);
        one.change(asked.id, &part(9, 1, 2, "c")).await; // the other part never comes
        drop(one);
        let mut two = node.greet().await;
        let again = two.wants(Kind::Watch).await;
        assert_eq!([again.get("from"), again.get("store"), again.get("epoch")], [8.into(), "s".into(), 1.into()]);
        two.change(again.id, &opened(20, 8)).await;
        two.change(again.id, &object([("type", "beat".into()), ("seq", 30.into()), ("epoch", 2.into())])).await;
        two.refuse(again.id, "TooSlow").await;
        let third = two.wants(Kind::Watch).await;
        assert_eq!([third.get("from"), third.get("epoch")], [30.into(), 2.into()]);
        two.change(third.id, &opened(20, 30)).await;
        two.refuse(third.id, "LogPruned").await;
        let (mut watch, error) = asking.await.unwrap();
        let error = error.unwrap_err();
        assert!(error.is(Code::LogPruned) && error.to_string().contains("read the table again"), "{error}");
        assert!(watch.next().await.is_none());
        ends(client, two).await;
    }

    async fn c44_parts_that_do_not_fit_are_refused() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let mut watch = client.database("shop", "main").watch("item");
        let asking = tokio::spawn(async move { watch.next().await.unwrap() });
        let mut one = node.greet().await;
        let asked = one.wants(Kind::Watch).await;
        one.change(asked.id, &opened(20, 7)).await;
        let commit = object([
            ("type", "commit".into()), ("seq", 8.into()), ("epoch", 1.into()), ("at", at()),
            ("part", 2.into()), ("of", 2.into()), ("changes", Value::Array(vec![])),
        ]);
        one.change(asked.id, &commit).await;
        assert!(matches!(asking.await.unwrap(), Err(Error::ProtocolBroken(_))));
        ends(client, one).await;
    }

    async fn c45_a_feed_that_nobody_reads_is_ended_and_opened_again() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let mut watch = client.database("shop", "main").watch("item");
        let peer = tokio::spawn(async move {
            let mut one = node.greet().await;
            for from in [0i64, 6] {
                let asked = one.wants(Kind::Watch).await;
                assert_eq!(asked.get("from"), if from == 0 { Value::None } else { from.into() });
                one.change(asked.id, &opened(99, from)).await;
                for seq in from + 1..=from + 6 {
                    let value = value_of([("v", "x".repeat(1 << 20).into())]);
                    let id = RecordId::new("item", seq);
                    let change = value_of([("action", "create".into()), ("id", id.into()), ("value", value)]);
                    let commit = object([
                        ("type", "commit".into()), ("seq", seq.into()), ("epoch", 1.into()), ("at", at()), ("by", Value::Null),
                        ("reason", Value::Null), ("changes", Value::Array(vec![change])),
                    ]);
                    one.change(asked.id, &commit).await;
                }
                assert_eq!(one.wants(Kind::Unwatch).await.id, asked.id);
                let body = object([("seq", (from + 6).into()), ("epoch", 1.into())]);
                one.say(Kind::Answer, asked.id, Some(&body)).await;
            }
            one
        });
        for seq in 1..=12 {
            assert_eq!(watch.next().await.unwrap().unwrap().seq, seq);
            // Nothing is asked for until the feed has been ended: once in the first six, once in the others.
            if seq == 1 || seq == 7 {
                let conn = home(&client).conn().unwrap();
                until(|| conn.exchange().open_calls() == 0).await;
            }
        }
        assert_eq!(watch.position().unwrap().seq, 11); // the last is not handled before the next is asked for
        ends(client, peer.await.unwrap()).await;
    }

    async fn c46_a_mirror_is_read_again_where_the_log_has_no_more() {
        async fn reads(one: &mut Spoken, seq: i64, name: &str) {
            for _ in 0..3 {
                let run = one.wants(Kind::Run).await; // a moment, a page of it, and its end
                let row = value_of([("id", RecordId::new("item", 1).into()), ("name", name.into())]);
                let rows = if run.text("script").is_empty() { vec![] } else { vec![row] };
                let mut body = answer_of(vec![result("rows", Value::Array(rows))], seq);
                if run.text("moment") == "new" {
                    body.insert("moment".into(), "m".into());
                }
                one.say(Kind::Answer, run.id, Some(&body)).await;
            }
        }
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let copies = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&copies);
        let making = client.database("a", "b").mirror::<Object>("item");
        let opening = begin(making.on_copy(move |copied| {
            lock(&seen).push((copied.seq, copied.why.is_some_and(|why| why.is(Code::LogPruned))));
        }));
        let mut one = node.greet().await;
        reads(&mut one, 4, "lamp").await;
        let mirror = outcome(opening).await.unwrap();
        let watch = one.wants(Kind::Watch).await;
        assert_eq!([watch.get("from"), watch.get("store"), watch.get("epoch")], [4.into(), "s".into(), 1.into()]);
        one.refuse(watch.id, "LogPruned").await;
        let id = RecordId::new("item", 1);
        assert_eq!(mirror.get(&id).unwrap()["name"], Value::from("lamp")); // meanwhile
        reads(&mut one, 9, "desk").await;
        let watch = one.wants(Kind::Watch).await;
        assert_eq!(mirror.rows()[0]["name"], Value::from("desk"));
        assert_eq!(*lock(&copies), [(4, false), (9, true)]);
        one.change(watch.id, &opened(9, 9)).await;
        let change = value_of([("action", "delete".into()), ("id", id.into()), ("value", Value::Null)]);
        let commit = object([
            ("type", "commit".into()), ("seq", 10.into()), ("epoch", 1.into()), ("at", at()), ("by", Value::Null),
            ("reason", Value::Null), ("changes", Value::Array(vec![change])),
        ]);
        drop(mirror.clone()); // one of its handles is left
        one.change(watch.id, &commit).await;
        mirror.reached(10).await.unwrap();
        assert!(mirror.is_empty());
        one.serves(1);
        mirror.close().await;
        assert!(matches!(mirror.error(), Some(Error::Closed)));
        client.close().await;
    }

    async fn c48_a_backup_is_whole_or_no_file() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let connecting = tokio::spawn({ let client = client.clone(); async move { client.connect().await } });
        let first = node.greet().await;
        outcome(connecting).await.unwrap();
        let folder = Folder::new();
        let path = folder.path.join("monday");
        let part = |n: i64, done: i64, total: i64| {
            let bytes = bytes::Bytes::from_static(b"12345");
            object([("n", n.into()), ("bytes", bytes.into()), ("done", done.into()), ("total", total.into())])
        };
        let told = value_of([("form", "snapshot".into()), ("records", 3.into()), ("version", "0".into())]);
        for (parts, ends_with) in [
            (vec![part(1, 5, 15), part(3, 15, 15)], "answer"),
            (vec![part(1, 5, 10)], "answer"),
            (vec![part(1, 5, 10)], "refusal"),
            (vec![part(1, 5, 10)], "break"),
            ((1..=20).map(|n| part(n, 5 * n, 100)).collect(), "answer"),
        ] {
            let is_whole = parts.len() == 20;
            let to = path.clone();
            let taking = tokio::spawn(client.backup().to_file(to));
            let mut own = node.greet().await; // a connection of its own
            let run = own.wants(Kind::Run).await;
            assert_eq!((run.text("script"), run.get("stream")), ("BACKUP", true.into()));
            for part in parts {
                own.say(Kind::Part, run.id, Some(&part)).await;
            }
            match ends_with {
                "answer" => own.answer(run.id, told.clone(), 1).await,
                "refusal" => own.refuse(run.id, "Busy").await,
                _ => drop(own),
            }
            let found = outcome(taking).await;
            assert_eq!(found.is_ok(), is_whole, "{found:?}");
            if let Ok(found) = found {
                assert_eq!((found.bytes, found.form.as_str(), found.records), (100, "snapshot", 3));
            }
            assert_eq!(folder.names(), if is_whole { vec!["monday"] } else { vec![] });
        }
        let Err(Error::Io(error)) = client.backup().to_file(&path).await else { panic!("it was replaced") };
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        ends(client, first).await;
    }

    async fn c48_a_backup_is_read_as_fast_as_it_is_written() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let connecting = tokio::spawn({ let client = client.clone(); async move { client.connect().await } });
        let first = node.greet().await;
        outcome(connecting).await.unwrap();
        let (mut to, mut from) = tokio::io::duplex(1 << 10);
        let taking = tokio::spawn({ let client = client.clone(); async move { client.backup().to_writer(&mut to).await } });
        let mut own = node.greet().await;
        let run = own.wants(Kind::Run).await;
        let sent = Arc::new(Mutex::new(0));
        let sending = tokio::spawn({
            let sent = Arc::clone(&sent);
            async move {
                for n in 1..=64i64 {
                    let bytes = bytes::Bytes::from(vec![7; 1 << 20]);
                    let part = object([("n", n.into()), ("bytes", bytes.into()), ("done", (n << 20).into()), ("total", (64i64 << 20).into())]);
                    own.say(Kind::Part, run.id, Some(&part)).await;
                    *lock(&sent) = n;
                }
                let told = value_of([("form", "snapshot".into()), ("records", 3.into()), ("version", "0".into())]);
                own.answer(run.id, told, 1).await;
                own
            }
        });
        until(|| *lock(&sent) >= 8).await;
        let mut buffer = [0; 512];
        tokio::io::AsyncReadExt::read_exact(&mut from, &mut buffer).await.unwrap();
        assert!(*lock(&sent) < 40, "everything was taken before it was written"); // what both systems hold is less
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await.unwrap();
        assert_eq!(outcome(taking).await.unwrap().bytes, 64 << 20);
        sending.await.unwrap();
        ends(client, first).await;
    }

    async fn c50_the_nodes_unknown_outcome_is_one_too() {
        let node = Peer::listen().await;
        let client = client_of(&node.address);
        let asked = begin(client.run("CREATE a"));
        let mut one = node.greet().await;
        let run = one.wants(Kind::Run).await;
        one.refuse(run.id, "UnknownOutcome").await;
        let error = failure(asked).await;
        assert!(error.is_outcome_unknown() && error.is(Code::UnknownOutcome));
        ends(client, one).await;
    }

    async fn calls_are_traced() {
        let node = Peer::listen().await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        let start = move |name: &str| {
            let (name, seen) = (name.to_owned(), Arc::clone(&seen));
            move |outcome: Result<(), &Error>| lock(&seen).push(format!("{name} {}", outcome.is_ok()))
        };
        let client = builder(&node.address).on_call(start).build().unwrap();
        let cache = client.database("a", "b").cache("c");
        let getting = tokio::spawn(async move { cache.get::<Value>("k").await });
        let mut one = node.greet().await;
        let get = one.wants(Kind::Kv).await;
        one.say(Kind::Value, get.id, None).await;
        outcome(getting).await.unwrap();
        let asked = begin(client.run("CREATE a"));
        let run = one.wants(Kind::Run).await;
        one.refuse(run.id, "AlreadyExists").await;
        failure(asked).await;
        assert_eq!(*lock(&calls), ["KV get true", "RUN false"]);
        ends(client, one).await;
    }
}

/// Hundreds of calls are in flight at one time, and fit into the caches of a processor.
#[test]
fn the_futures_of_calls_are_small() {
    let client = builder("127.0.0.1:1").build().unwrap();
    let db = client.database("n", "d");
    let (cache, topic) = (db.cache("s"), db.topic("t"));
    let get = size_of_val(&cache.get::<i64>("k"));
    let set = size_of_val(&*cache.set("k", 1).into_future());
    let publish = size_of_val(&*topic.publish(1).into_future());
    assert!(get.max(set).max(publish) <= 640, "{get} {set} {publish}");
}

async fn takes(one: &mut Spoken, count: i64) -> u64 {
    let asked = one.wants(Kind::Topic).await;
    assert_eq!((asked.text("op"), asked.get("count"), asked.get("wait")), ("take", count.into(), minutes(1)));
    asked.id
}

async fn acked(one: &mut Spoken, receipts: &[&str]) -> u64 {
    let asked = one.wants(Kind::Topic).await;
    assert_eq!((asked.text("op"), asked.get("receipts")), ("ack", texts(receipts)));
    asked.id
}

fn delivered(first: i64, count: i64) -> Value {
    let message = |position: i64| {
        value_of([
            ("position", position.into()),
            ("at", at()),
            ("headers", value_of([])),
            ("value", position.into()),
            ("bytes", 9.into()),
            ("receipt", format!("r{position}").into()),
            ("attempt", 1.into()),
            ("deadline", at()),
            ("member", Value::Null),
        ])
    };
    Value::Array((first..first + count).map(message).collect())
}

fn opened(seq: i64, start: i64) -> Object {
    object([
        ("type", "open".into()),
        ("seq", seq.into()),
        ("start", start.into()),
        ("store", "s".into()),
        ("epoch", 2.into()),
        ("start_epoch", 1.into()),
    ])
}
