//! A small shop: a queue of orders with a pool of workers, a cached page, and a live list.
//!
//!     cargo run --example shop -- 127.0.0.1:8001 root PASSWORD [ORDERS]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use storenode::{Client, Code, Consumer, Database, Delivery, RecordId, Result};

#[derive(Deserialize)]
struct Item {
    id: RecordId,
    name: String,
    stock: i64,
}

#[derive(Serialize, Deserialize)]
struct Order {
    item: RecordId,
    count: i64,
}

const WORKERS: usize = 4;

async fn define(client: &Client) -> Result<Database> {
    client
        .run(
            "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.example; USE shop.example;
             DEFINE TABLE IF NOT EXISTS item; DEFINE TABLE IF NOT EXISTS sold; DEFINE SPACE IF NOT EXISTS pages;
             DEFINE TOPIC IF NOT EXISTS orders; DEFINE GROUP IF NOT EXISTS packers ON orders DEADLINE 10s;
             UPSERT item:1 SET name = 'lamp', stock = 1000; UPSERT item:2 SET name = 'desk', stock = 1000; DELETE sold",
        )
        .await?;
    Ok(client.database("shop", "example"))
}

/// Pack an order: the stock, the sale and the acknowledgement change in one transaction.
async fn pack(message: &Delivery) -> Result<bool> {
    let Order { item, count } = message.decode()?;
    let done = message
        .done("UPDATE $item SET stock = stock - $count; CREATE sold SET item = $item, count = $count")
        .bind("item", &item)
        .bind("count", count);
    match done.await {
        Ok(answer) => Ok(answer.is_some()),
        Err(error) if error.is(Code::Conflict) => {
            message.nack().delay(Duration::from_millis(50)).await?; // another worker sells the same item
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

async fn worker(messages: Consumer, packed: Arc<AtomicUsize>, orders: usize) -> Result<()> {
    while let Some(message) = messages.next().await {
        if pack(&message?).await? && packed.fetch_add(1, Ordering::SeqCst) + 1 >= orders {
            messages.stop().await?; // and with it the other workers
        }
    }
    Ok(())
}

/// Work on orders with a pool until so many are packed.
async fn work(db: &Database, orders: usize) -> Result<()> {
    let messages = db.topic("orders").group("packers").messages().prefetch(2 * WORKERS).extend().build();
    let packed = Arc::new(AtomicUsize::new(0));
    let start = |_| tokio::spawn(worker(messages.clone(), Arc::clone(&packed), orders));
    for worker in (0..WORKERS).map(start).collect::<Vec<_>>() {
        worker.await.expect("a worker has panicked")?;
    }
    Ok(())
}

/// Return the page of an item, made once a minute.
async fn page(db: &Database, id: &RecordId) -> Result<String> {
    let load = || async {
        let item: Item = db.query("SELECT * FROM ONLY $id").bind("id", id).await?;
        Ok(format!("<h1>{}</h1><p>{} left</p>", item.name, item.stock))
    };
    db.cache("pages").get_or_set(&format!("item/{id}"), Duration::from_secs(60), load).await
}

/// Print the list of items whenever it changes.
async fn list(db: Database) -> Result<()> {
    let items = db.mirror::<Item>("item").await?;
    loop {
        let seq = items.seq();
        let lines: Vec<_> =
            items.rows().iter().map(|item| format!("{}: {}", item.name, item.stock)).collect();
        println!("{}", lines.join(", "));
        items.changed(seq).await?;
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or("127.0.0.1:8001".into());
    let (user, password) = (words.next().unwrap_or("root".into()), words.next().unwrap_or_default());
    let orders = words.next().and_then(|orders| orders.parse().ok()).unwrap_or(20);
    let client = Client::builder(address).user(user, password).build()?;
    let db = define(&client).await?;
    let items: Vec<Item> = db.query("SELECT * FROM item ORDER BY id").await?;
    let listing = tokio::spawn(list(db.clone()));
    let sold = items.iter().cycle().take(orders).map(|item| Order { item: item.id.clone(), count: 1 });
    db.topic("orders").publish_many(sold).await?;
    work(&db, orders).await?;
    for item in &items {
        println!("{}", page(&db, &item.id).await?);
    }
    listing.abort();
    println!("{} sold", db.query::<i64>("SELECT VALUE count() FROM ONLY sold GROUP ALL").await?);
    client.close().await;
    Ok(())
}
