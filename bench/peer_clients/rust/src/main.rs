//! Load on Redis through redis-rs: `load PORT`, see bench/peer_clients/README.md.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use redis::{AsyncCommands, RedisResult};
use serde::Deserialize;

const PAGE: usize = 1000;

#[derive(Deserialize)]
struct Asked {
    operation: String,
    depth: usize,
    count: i64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("a port is missing")?;
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let mut config = redis::AsyncConnectionConfig::new();
    config = config.set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    for line in std::io::stdin().lock().lines() {
        let asked: Asked = serde_json::from_str(&line?)?;
        if asked.operation == "rows" {
            let found = rows(connection.clone()).await?;
            assert_eq!(found, asked.count, "rows");
        } else {
            all(&connection, &asked).await?;
        }
        println!("{{}}");
    }
    Ok(())
}

async fn all(connection: &MultiplexedConnection, asked: &Asked) -> Result<(), Box<dyn std::error::Error>> {
    let left = Arc::new(AtomicI64::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..asked.depth {
        let (mut connection, left) = (connection.clone(), Arc::clone(&left));
        let (operation, count) = (asked.operation.clone(), asked.count);
        workers.spawn(async move {
            loop {
                let number = left.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return RedisResult::Ok(());
                }
                let key = format!("k{}", number % 1000);
                match operation.as_str() {
                    "get" => drop(connection.get::<_, Option<i64>>(&key).await?),
                    "set" => connection.set::<_, _, ()>(&key, number).await?,
                    _ => drop(connection.xadd::<_, _, _, _, Option<String>>("topic", "*", &[("value", number)]).await?),
                }
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn rows(mut connection: MultiplexedConnection) -> RedisResult<i64> {
    let (mut count, mut begin) = (0, "-".to_owned());
    loop {
        let page: StreamRangeReply = connection.xrange_count("rows", &begin, "+", PAGE).await?;
        let Some(last) = page.ids.last() else { return Ok(count) };
        count += page.ids.len() as i64;
        begin = format!("({}", last.id);
    }
}
