// A producer, a push and a simple consumer of RocketMQ's gRPC client: Doors PROXY USER SECRET. Prints what came, in an order that is always the same.
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

public class Doors {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] words) throws Exception {
        ClientConfiguration proxy = ClientConfiguration.newBuilder().setEndpoints(words[0]).enableSsl(false)
            .setCredentialProvider(new StaticSessionCredentialsProvider(words[1], words[2]))
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        TreeSet<String> simple = new TreeSet<>();
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(proxy).setConsumerGroup("simple")
            .setAwaitDuration(Duration.ofSeconds(1))
            .setSubscriptionExpressions(Map.of("Plain", new FilterExpression("a || b", FilterExpressionType.TAG))).build();
        consumer.receive(1, Duration.ofSeconds(10));  // a new group begins behind the last message
        ConcurrentSkipListSet<String> pushed = new ConcurrentSkipListSet<>();
        List<String> ordered = Collections.synchronizedList(new java.util.ArrayList<>());
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(proxy).setConsumerGroup("pushed")
            .setSubscriptionExpressions(Map.of("Delayed", new FilterExpression(), "Transactional", new FilterExpression(),
                "Plain", new FilterExpression("a", FilterExpressionType.TAG)))
            .setMessageListener(message -> {
                String body = text(message);
                pushed.add(body + " " + message.getDeliveryAttempt());
                return body.equals("a-0") && tries.merge(body, 1, Integer::sum) == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        PushConsumer inOrder = PROVIDER.newPushConsumerBuilder().setClientConfiguration(proxy).setConsumerGroup("ordered")
            .setSubscriptionExpressions(Map.of("Fifo", new FilterExpression())).setMessageListener(message -> {
                ordered.add(text(message) + " " + message.getMessageGroup().orElse("?"));
                return ConsumeResult.SUCCESS;
            }).build();
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(proxy)
            .setTopics("Plain", "Fifo", "Delayed", "Transactional")
            .setTransactionChecker(message -> TransactionResolution.COMMIT).build();
        Thread.sleep(3000);  // the consumers ask for the first time
        for (int number = 0; number < 4; number++) {
            for (String tag : new String[] {"a", "b", "c"}) {
                SendReceipt receipt = producer.send(made("Plain", tag + "-" + number).setTag(tag).setKeys("k" + number)
                    .addProperty("colour", "red").build());
                if (receipt.getMessageId().toString().isEmpty()) {
                    System.out.println("NO ID");
                }
            }
            producer.send(made("Fifo", "f-" + number).setMessageGroup("order-7").build());
        }
        byte[] large = new byte[100_000];  // the client compresses it
        producer.send(PROVIDER.newMessageBuilder().setTopic("Plain").setTag("b").setBody(large).build());
        producer.send(made("Delayed", "later").setDeliveryTimestamp(System.currentTimeMillis() + 2000).build());
        Transaction kept = producer.beginTransaction();
        producer.send(made("Transactional", "kept").build(), kept);
        kept.commit();
        Transaction dropped = producer.beginTransaction();
        producer.send(made("Transactional", "dropped").build(), dropped);
        dropped.rollback();
        producer.send(made("Transactional", "open").build(), producer.beginTransaction());
        long end = System.currentTimeMillis() + 60_000;
        while (simple.size() < 9 && System.currentTimeMillis() < end) {
            for (MessageView message : consumer.receive(16, Duration.ofSeconds(30))) {
                simple.add(text(message) + " " + message.getTag().orElse("?") + " " + message.getKeys() + " " + message.getProperties());
                consumer.ack(message);
            }
        }
        while ((pushed.size() < 8 || ordered.size() < 4) && System.currentTimeMillis() < end) {
            Thread.sleep(200);
        }
        simple.forEach(line -> System.out.println("SIMPLE " + line));
        pushed.forEach(line -> System.out.println("PUSHED " + line));
        ordered.forEach(line -> System.out.println("ORDERED " + line));
        inOrder.close();
        push.close();
        consumer.close();
        producer.close();
        System.exit(0);
    }

    static MessageBuilder made(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return bytes.length > 1000 ? bytes.length + " bytes" : new String(bytes, StandardCharsets.UTF_8);
    }
}
