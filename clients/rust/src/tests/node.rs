//! The whole surface against the node that STORENODE_ADDRESS names. Each test has a namespace of its own.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use super::peer::{Folder, PATIENCE};
use crate::waits::lock;
use crate::*;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn open(address: &str, password: &str) -> Client {
    let user = variable("STORENODE_USER").unwrap_or("root".into());
    Client::builder(address).user(user, password).connect_timeout(PATIENCE).build().unwrap()
}

/// Run a test with a client, on several threads.
fn run<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Client, Database) -> F) {
    let Some(address) = variable("STORENODE_ADDRESS") else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = open(&address, &variable("STORENODE_PASSWORD").unwrap_or_default());
        let define =
            format!("DEFINE NAMESPACE IF NOT EXISTS {name}; DEFINE DATABASE IF NOT EXISTS {name}.main");
        client.run(define).await.unwrap();
        let db = client.database(name, "main");
        tokio::time::timeout(4 * PATIENCE, test(client.clone(), db))
            .await
            .expect("the test goes on for ever");
        client.close().await;
    });
}

macro_rules! tests {
    ($(async fn $name:ident($client:ident, $db:ident) $body:block)*) => {$(
        #[test]
        fn $name() {
            run(stringify!($name), |$client, $db| async move {
                let _ = &$client;
                $body
            });
        }
    )*};
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[derive(Debug, Deserialize)]
struct Item {
    name: String,
}

tests! {
    async fn node_values(client, db) {
        let every = Object::from(
            [
                ("null", Value::Null),
                ("bool", true.into()),
                ("int", i64::MAX.into()),
                ("least", i64::MIN.into()),
                ("small", 7.into()),
                ("float", 1.0.into()),
                ("tenth", 0.1.into()),
                ("decimal", "12.30".parse::<Decimal>().unwrap().into()),
                ("string", "naïve ☃ 'quoted'".into()),
                ("bytes", bytes::Bytes::from_static(&[0, 255]).into()),
                ("datetime", "2026-01-02T03:04:05.123456Z".parse::<DateTime>().unwrap().into()),
                ("before", "1931-01-02T03:04:05.000007Z".parse::<DateTime>().unwrap().into()),
                ("duration", "-3d".parse::<SignedDuration>().unwrap().into()),
                ("uuid", "018f0000-0000-0000-0000-000000000000".parse::<Uuid>().unwrap().into()),
                ("record", RecordId::new("person", vec![RecordKey::from("a"), RecordKey::from(1)]).into()),
                ("array", Value::Array(vec![1.into(), Value::Array(vec![2.5.into()]), "x".into()])),
                ("object", Object::from([("b c".to_owned(), Object::new().into())]).into()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        db.run("DEFINE TABLE item; CREATE item:1 CONTENT $v").bind("v", BTreeMap::from([("v", &every)])).await.unwrap();
        let found: Vec<Object> = db.query("SELECT VALUE v FROM item").await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0], every);
        assert_eq!(found[0]["decimal"], every["decimal"]);
        assert_eq!(db.query::<Value>("RETURN $v").bind("v", Value::None).await.unwrap(), Value::None);
        client.ping().await.unwrap();
    }

    async fn node_c52_scripts_and_transactions(client, db) {
        db.run("DEFINE TABLE item").await.unwrap();
        let error = db.run("CREATE item:1 SET a = 1; CREATE item:1 SET a = 2; RETURN 3").await.unwrap_err();
        assert!(error.is(Code::AlreadyExists));
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.statement, refusal.committed() > 0, refusal.results.len()), (Some(2), true, 1));
        let mut transaction = db.transaction();
        for n in 0..3 {
            transaction = transaction.statement("CREATE item CONTENT { n: $n, was: '$n' } -- $n").bind("n", n);
        }
        let answer = transaction.await.unwrap();
        assert_eq!(answer.results.len(), 3);
        assert_eq!(db.query::<Vec<i64>>("SELECT VALUE n FROM item WHERE n >= 0 ORDER BY n").await.unwrap(), [0, 1, 2]);
        let error = db.transaction().statement("CREATE item:7").statement("CREATE item:1").await.unwrap_err();
        assert!(error.is(Code::AlreadyExists));
        assert!(db.query::<Vec<Value>>("SELECT * FROM item:7").await.unwrap().is_empty());
        let error = db.transaction().statement("COMMIT; CREATE item:8").await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)));
        db.run("DELETE item").await.unwrap();
        let rows: Vec<_> = (0..25).map(|n| BTreeMap::from([("id", Value::from(n)), ("name", format!("chair {n}").into())])).collect();
        db.run("INSERT INTO item $rows").bind("rows", rows).await.unwrap();
        let moment = db.moment().await.unwrap();
        let mut rows = moment.rows::<Item>("SELECT id, name FROM item WHERE name != $not").bind("not", "chair 3").page(7);
        let mut read = Vec::new();
        while let Some(row) = rows.next().await {
            if read.is_empty() {
                db.run("DELETE item WHERE id > item:10").await.unwrap();
            }
            read.push(row.unwrap().name);
        }
        assert_eq!((read.len(), read[3].as_str(), read[23].as_str()), (24, "chair 4", "chair 24"));
        moment.clone().close().await.unwrap();
        assert!(moment.run("RETURN 1").await.unwrap_err().is(Code::Unknown));
        let error = db.rows::<Item>("SELECT name FROM item").next().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("`id` among its fields"), "{error}");
        let script = db.run("CREATE item:99; SELECT * FROM item").timeout(Duration::from_secs(60)).reason("why");
        let mut answer = script.after(answer.seq).current().record().await.unwrap();
        assert_eq!(answer.take::<Vec<Value>>(0).unwrap().len(), 1);
        assert!(answer.take::<Value>(2).is_err());
        let welcome = client.connect().await.unwrap();
        assert_eq!((welcome.minor, welcome.writable), (10, true));
        assert!(db.topic("none").read().wait(Duration::from_secs(60)).await.unwrap_err().is(Code::Unknown));
        assert!(matches!(db.query::<String>("RETURN 1").await, Err(Error::Decode(_))));
    }

    async fn node_cache(client, db) {
        db.run("DEFINE SPACE sessions").await.unwrap();
        let cache = db.cache("sessions");
        let hour = Duration::from_secs(3600);
        assert_eq!(cache.get::<Value>("a").await.unwrap(), None);
        cache.set("a", BTreeMap::from([("user", 7)])).ttl(hour).await.unwrap();
        assert_eq!(cache.get::<BTreeMap<String, i64>>("a").await.unwrap().unwrap()["user"], 7);
        let Some(Ttl::In(left)) = cache.ttl("a").await.unwrap() else { panic!("it does not expire") };
        assert!(left > hour - PATIENCE);
        cache.set("a", ()).keep_ttl().await.unwrap();
        assert_eq!(cache.get::<Value>("a").await.unwrap(), Some(Value::Null));
        assert!(cache.persist("a").await.unwrap());
        assert_eq!(cache.ttl("a").await.unwrap(), Some(Ttl::Never));
        assert_eq!(cache.ttl("none").await.unwrap(), None);
        assert!(cache.expire("a", hour).await.unwrap() && !cache.expire("none", hour).await.unwrap());
        assert!(!cache.set_if_absent("a", 1).await.unwrap() && cache.set_if_present("a", 1).await.unwrap());
        assert!(!cache.compare_and_set("a", 1.0, 2).await.unwrap()); // 1 is not 1.0
        assert!(cache.compare_and_set("a", 1, 2).await.unwrap());
        assert!(cache.compare_and_set("b", Value::None, "new").await.unwrap());
        assert_eq!((cache.incr("n", 1).await.unwrap(), cache.incr("n", 41).await.unwrap()), (1, 42));
        assert_eq!(cache.incr("big", 1 << 60).await.unwrap(), 1 << 60);
        assert!(cache.delete("a").await.unwrap() && !cache.delete("a").await.unwrap());
        let names: Vec<String> = (0..1203).map(|n| format!("key:{n:05}")).collect();
        let sets: Vec<_> = names.iter().enumerate().map(|(n, name)| tokio::spawn(cache.set(name, n).into_future())).collect();
        for set in sets {
            set.await.unwrap().unwrap();
        }
        assert_eq!(cache.keys().prefix("key:").after("key:00001").limit(2).await.unwrap(), names[2..4]);
        let mut all = Vec::new();
        let mut keys = cache.all_keys("key:");
        while let Some(key) = keys.next().await {
            all.push(key.unwrap());
        }
        assert_eq!(all, names);

        let loads = Arc::new(AtomicI64::new(0));
        let racing: Vec<_> = (0..5)
            .map(|_| {
                let (cache, loads) = (cache.clone(), Arc::clone(&loads));
                tokio::spawn(async move {
                    let load = || async { Ok::<_, Error>(loads.fetch_add(1, Ordering::SeqCst)) };
                    cache.get_or_set("page", Duration::from_secs(60), load).await.unwrap()
                })
            })
            .collect();
        let mut loaded = HashSet::new();
        for one in racing {
            loaded.insert(one.await.unwrap());
        }
        assert_eq!(loaded.len(), 1);

        let minute = Duration::from_secs(60);
        let lease = cache.lock("job", minute).holder("one").await.unwrap().unwrap();
        assert!(cache.lock("job", minute).await.unwrap().is_none());
        assert!(lease.extend_by(2 * minute).await.unwrap() && lease.until() > DateTime::now());
        assert!(lease.release().await.unwrap() && lease.is_lost());
        assert!(!lease.release().await.unwrap() && !lease.extend().await.unwrap());
        let again = cache.lock("job", minute).holder("one").renew().await.unwrap().unwrap();
        assert!(again.fence() > lease.fence());
        assert!(again.release().await.unwrap());
    }

    async fn node_topics(client, db) {
        db.run("DEFINE TOPIC jobs DEDUP 10m; DEFINE GROUP workers ON jobs DEADLINE 30s; DEFINE TABLE paid").await.unwrap();
        let jobs = db.topic("jobs");
        let first = jobs.publish(BTreeMap::from([("order", 81)])).key("ana").id("order-81").header("a", "b").await.unwrap();
        assert_eq!((first.position, first.duplicate), (1, false));
        let again = jobs.publish("another").id("order-81").await.unwrap();
        assert_eq!((again.position, again.duplicate), (1, true));
        let many = jobs.publish_many([1, 2, 3]).await.unwrap();
        assert_eq!((many.first, many.last), (2, 4));
        assert!(jobs.publish(1).expect(9).await.unwrap_err().is(Code::AssertFailed));
        jobs.publish(5).delay(Duration::from_secs(3600)).await.unwrap();
        let page = jobs.read().await.unwrap();
        assert_eq!((page.len(), page[0].key.as_deref(), page[0].id.as_deref()), (5, Some("ana"), Some("order-81")));
        assert_eq!((page[0].headers["a"].as_str(), page[0].decode::<BTreeMap<String, i64>>().unwrap()["order"]), ("b", 81));
        assert!(page[4].due.is_some());

        let reader = jobs.reader("audit");
        reader.define().await.unwrap();
        let mut messages = reader.messages();
        while let Some(message) = messages.next().await {
            if message.unwrap().position == 2 {
                break;
            }
        }
        messages.commit().await.unwrap();
        assert_eq!(reader.read().await.unwrap()[0].position, 3);
        reader.move_to(Place::Time(page[2].at)).await.unwrap();
        reader.move_to(Place::After(0)).await.unwrap();
        let mut messages = reader.messages();
        let mut count = 0;
        while let Some(message) = messages.next().await {
            message.unwrap();
            count += 1;
        }
        assert_eq!(count, 5);
        assert!(reader.read().await.unwrap().is_empty());
        jobs.reader("late").define_at(Place::End).await.unwrap();
        reader.remove().await.unwrap();

        let workers = jobs.group("workers");
        let taken = workers.take().count(2).member("one").await.unwrap();
        let [one, two] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!((one.attempt(), one.member()), (1, Some("one")));
        let done = one.done("CREATE paid SET job = $job;\nCREATE paid SET job = 0").bind("job", &one.value).await.unwrap();
        assert_eq!(done.unwrap().results.len(), 2);
        assert_eq!(one.done("CREATE paid SET job = 1").await.unwrap(), None);
        let error = two.done("CREATE paid:1;\n  CREATE paid:1").await.unwrap_err();
        assert!(error.is(Code::AlreadyExists));
        let refusal = error.refusal().unwrap();
        assert_eq!([refusal.statement, refusal.line, refusal.column], [Some(2), Some(2), Some(3)]);
        let error = two.done("CREAT paid:1").await.unwrap_err();
        assert_eq!((error.is(Code::UnexpectedToken), error.refusal().unwrap().column), (true, Some(1)));
        assert!(two.extend(Duration::from_secs(60)).await.unwrap());
        assert!(two.nack().delay(Duration::ZERO).error("later").await.unwrap());
        assert!(!two.ack().await.unwrap());
        let receipts = [one.receipt(), two.receipt()];
        let settled = workers.ack(&receipts).await.unwrap();
        assert_eq!((settled.done, settled.stale), (0, strings(&receipts)));
        assert_eq!(db.query::<i64>("SELECT VALUE count() FROM ONLY paid GROUP ALL").await.unwrap(), 2);

        let many = 700;
        for _ in 0..many / 100 {
            jobs.publish_many(vec![(); 100]).await.unwrap();
        }
        let consumer = workers.messages().prefetch(200).extend().build();
        let mut acks = Vec::new();
        while acks.len() < many {
            let message = consumer.next().await.unwrap().unwrap();
            acks.push(tokio::spawn(async move { message.ack().await }));
        }
        consumer.stop().await.unwrap();
        for ack in acks {
            assert!(ack.await.unwrap().unwrap());
        }
        assert_eq!(consumer.stale(), 0);
        let rest = workers.take().count(1000).await.unwrap();
        assert_eq!(rest.len(), 3);
        for left in &rest {
            assert!(left.give_up(Some("no use")).await.unwrap());
        }
        assert_eq!(workers.info().await.unwrap()["name"], "workers".into());
        assert_eq!(jobs.info().await.unwrap()["name"], "jobs".into());
    }

    async fn node_c17_a_consumer_ends_with_its_client(client, db) {
        // A message that was given to what is dropped comes again after the deadline.
        db.run("DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 1s").await.unwrap();
        let jobs = db.topic("jobs");
        for extends in [false, true] {
            let builder = jobs.group("workers").messages();
            let consumer = if extends { builder.extend() } else { builder }.build();
            let waiting = tokio::spawn({
                let consumer = consumer.clone();
                async move { consumer.next().await.unwrap().map(drop) }
            });
            jobs.publish(1).await.unwrap(); // the TAKE is at the node, or comes in time
            waiting.abort();
            drop(waiting.await);
            consumer.stop().await.unwrap();
        }
        let left = jobs.group("workers").messages().build();
        while let Some(message) = left.next().await {
            let message = message.unwrap();
            message.ack().await.unwrap();
            if message.position >= 2 {
                break;
            }
        }
        let waiting = tokio::spawn(async move { left.next().await.unwrap().map(drop) });
        client.close().await;
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    }

    async fn node_large_requests_and_answers(client, db) {
        let text = "x".repeat(6 << 20);
        client.connect().await.unwrap();
        let conn = client.nodes().home().unwrap().conn().unwrap();
        for _ in 0..4 {
            let asked = tokio::spawn(db.query::<usize>("RETURN string::len($text)").bind("text", &text).into_future());
            tokio::task::yield_now().await;
            asked.abort();
            if let Ok(found) = asked.await {
                assert_eq!(found.unwrap(), text.len());
            }
        }
        assert!(db.query::<String>("RETURN $text").bind("text", &text).await.unwrap() == text);
        let error = db.run("RETURN [$text, $text, $text]").bind("text", &text).await.unwrap_err();
        assert!(error.is(Code::AnswerTooLarge));
        let error = db.run("RETURN $text").bind("text", "x".repeat(16 << 20)).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)));
        client.ping().await.unwrap();
        assert!(Arc::ptr_eq(&client.nodes().home().unwrap().conn().unwrap(), &conn));
    }

    async fn node_feeds(client, db) {
        let before = db.run("DEFINE TABLE item; CREATE item:1 SET name = 'desk'").await.unwrap().position();
        db.run("BEGIN; UPDATE item:1 SET price = 90; CREATE item:2 SET name = 'shelf', price = 5; COMMIT").await.unwrap();
        let mut watch = db.watch("item").from(before.clone()).before();
        let commit = watch.next().await.unwrap().unwrap();
        let seen: Vec<_> = commit
            .changes
            .iter()
            .map(|change| {
                let was = change.decode_before::<Item>().unwrap().map(|item| item.name);
                (change.action, change.id.to_string(), was)
            })
            .collect();
        let wanted = [(Action::Update, "item:1".to_owned(), Some("desk".to_owned())), (Action::Create, "item:2".to_owned(), None)];
        assert_eq!(seen, wanted);
        assert_eq!(watch.position(), Some(before.clone()));
        let mut again = db.watch("item").from(before.clone()).actions([Action::Create]);
        assert_eq!(again.next().await.unwrap().unwrap().changes.len(), 1);
        let foreign = Position { seq: 1, store: Some("another".into()), epoch: None };
        assert!(db.watch("item").from(foreign).next().await.unwrap().unwrap_err().is(Code::Diverged));

        let copies = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&copies);
        let mirror = db.mirror::<Item>("item").condition("price > 10").page(1).on_copy(move |copied| lock(&seen).push(copied.rows));
        let mirror = mirror.await.unwrap();
        assert_eq!((mirror.len(), lock(&copies).clone()), (1, vec![1]));
        let answer = db.run("UPDATE item:2 SET price = 35; UPDATE item:1 SET price = 5").await.unwrap();
        mirror.reached(answer.seq).await.unwrap();
        let found = mirror.get(&RecordId::new("item", 2)).unwrap();
        assert_eq!((found.name.as_str(), mirror.rows().len(), mirror.seq()), ("shelf", 1, answer.seq));
        mirror.changed(before.seq).await.unwrap(); // it has changed since then already
        mirror.close().await;
        assert!(matches!(mirror.changed(mirror.seq()).await, Err(Error::Closed)));
        assert!(matches!(mirror.error(), Some(Error::Closed)));
    }

    async fn node_vaults(client, db) {
        let seal = client.store_seal();
        let passphrase = "open sesame, please";
        // Another client's tests may have set it before.
        if seal.change_passphrase(None, passphrase).await.is_err() {
            seal.unseal(passphrase).await.unwrap();
        }
        db.run("DEFINE VAULT payment VERSIONS 2").await.unwrap();
        let vault = db.vault("payment");
        seal.seal().await.unwrap();
        assert!(vault.write("k", 1).await.unwrap_err().is(Code::Sealed));
        assert!(seal.unseal("another").await.unwrap_err().is(Code::WrongKey));
        assert!(seal.unseal(passphrase).await.unwrap() > DateTime::now());
        let written = |written: Written| (written.written, written.version);
        assert_eq!(written(vault.write("stripe/live", "sk_1").reason("new").await.unwrap()), (true, 1));
        assert_eq!(written(vault.write("stripe/live", "sk_2").if_absent().await.unwrap()), (false, 1));
        assert_eq!(written(vault.write("stripe/live", "sk_2").expect_version(1).await.unwrap()), (true, 2));
        let found = vault.reveal("stripe/live").reason("refunds").await.unwrap();
        assert_eq!((found.id.as_str(), found.decode::<String>().unwrap().as_str(), found.version), ("stripe/live", "sk_2", 2));
        assert_eq!(vault.reveal("stripe/live").version(1).await.unwrap().value, "sk_1".into());
        assert_eq!(vault.list().prefix("stripe/").limit(10).await.unwrap(), ["stripe/live"]);
        assert_eq!(vault.info().await.unwrap()["records"], 1.into());
        assert_eq!(vault.audit(1, None).await.unwrap()[0]["action"], "list".into());
        assert!(vault.erase("stripe/live").reason("done").await.unwrap());
        seal.seal().await.unwrap();
        assert!(vault.list().await.unwrap_err().is(Code::Sealed));
    }

    async fn node_backups(client, db) {
        db.run("DEFINE TABLE item; CREATE item:1 SET text = 'a'").await.unwrap();
        let folder = Folder::new();
        let path = folder.path.join("monday.storesnap");
        let last = Arc::new(AtomicI64::new(0));
        let seen = Arc::clone(&last);
        let backup = client.backup().on_progress(move |done, _| seen.store(done as i64, Ordering::SeqCst));
        let found = backup.to_file(&path).await.unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        assert_eq!((found.bytes, found.form.as_str(), last.load(Ordering::SeqCst) as u64), (size, "snapshot", size));
        let Err(Error::Io(error)) = client.backup().to_file(&path).await else { panic!("it was replaced") };
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        let of = client.backup().database("node_backups", "main").reason("to see");
        assert_eq!(of.to_file(folder.path.join("of")).await.unwrap().records, 1);
        let error = client.backup().namespace("nowhere").to_file(folder.path.join("none")).await.unwrap_err();
        assert!(error.is(Code::Unknown));
        assert_eq!(folder.names(), ["monday.storesnap", "of"]);
        let mut streamed = Vec::new();
        let found = client.backup().to_writer(&mut streamed).await.unwrap();
        assert_eq!(found.bytes, streamed.len() as u64);
    }

    async fn node_refuses_a_password(client, db) {
        drop(db);
        let other = open(&variable("STORENODE_ADDRESS").unwrap(), "wrong");
        assert!(other.connect().await.unwrap_err().is(Code::SignInRefused));
        other.close().await;
    }
}
