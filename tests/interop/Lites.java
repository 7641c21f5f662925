// A producer and a lite push consumer of RocketMQ's gRPC client: Lites PROXY TOPIC GROUP
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;

public class Lites {
    public static void main(String[] words) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration proxy = ClientConfiguration.newBuilder().setEndpoints(words[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        CountDownLatch left = new CountDownLatch(6);
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        LitePushConsumer consumer = provider.newLitePushConsumerBuilder().setClientConfiguration(proxy)
            .setConsumerGroup(words[2]).bindTopic(words[1]).setMessageListener(message -> {
                byte[] bytes = new byte[message.getBody().remaining()];
                message.getBody().get(bytes);
                String body = new String(bytes, StandardCharsets.UTF_8);
                int tried = tries.merge(body, 1, Integer::sum);
                boolean fails = body.equals("a-1") && tried == 1;
                synchronized (Lites.class) {
                    System.out.println("GOT " + message.getLiteTopic().orElse("?") + " " + body + " " + message.getDeliveryAttempt());
                }
                if (!fails) {
                    left.countDown();
                }
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        consumer.subscribeLite("a");
        consumer.subscribeLite("b");
        System.out.println("WANTS " + consumer.getLiteTopicSet().size());
        Producer producer = provider.newProducerBuilder().setClientConfiguration(proxy).setTopics(words[1]).build();
        for (int number = 0; number < 3; number++) {
            for (String lite : new String[] {"a", "b", "unwanted"}) {
                byte[] body = (lite + "-" + number).getBytes(StandardCharsets.UTF_8);
                producer.send(provider.newMessageBuilder().setTopic(words[1]).setLiteTopic(lite).setBody(body).build());
            }
        }
        System.out.println("SENT");
        System.out.println(left.await(90, TimeUnit.SECONDS) ? "ALL" : "MISSING");
        consumer.unsubscribeLite("a");
        System.out.println("WANTS " + consumer.getLiteTopicSet().size());
        consumer.close();
        producer.close();
        System.exit(0);
    }
}
