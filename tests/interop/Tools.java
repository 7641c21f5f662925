import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * mqadmin, command after command in one program: Tools NAMESRV. A line of input is a command with its arguments, separated by
 * tabs; what it prints, errors too, ends with a line DONE. A line STOP interrupts a command that goes on for ever.
 *
 *   help                  the list of all commands
 *   options               their options, each on a line: command, letter, long name, whether it has an argument
 *   member TOPIC GROUP    a push consumer, from now on
 *   reader TOPIC GROUP    the same, which prints GOT and the body of each message, whenever that comes
 *   seller TOPIC GROUP    a producer, from now on, which sends one message
 *   traced TOPIC          a message with a trace
 *   commit                the consumers report how far they are
 */
public final class Tools {
    private static final List<DefaultMQPushConsumer> MEMBERS = new ArrayList<>();
    private static final List<DefaultMQProducer> SELLERS = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        System.out.println("STARTED");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        Thread watching = new Thread(Tools::hurry);
        watching.setDaemon(true);
        watching.start();
        Thread running = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("STOP")) {
                running.interrupt();
                continue;
            }
            System.setProperty("rocketmq.namesrv.addr", args[0]); // an earlier command may have named another with -n
            String[] words = line.split("\t", -1);
            running = new Thread(() -> run(args[0], words), "command-" + words[0]);
            running.start();
        }
        System.exit(0);
    }

    /** At its end each command waits up to three seconds for a thread of the client that looks for nothing: it is woken. */
    private static void hurry() {
        while (true) {
            for (Map.Entry<Thread, StackTraceElement[]> one : Thread.getAllStackTraces().entrySet()) {
                if (one.getKey().getName().startsWith("command-") && has(one.getValue(), "shutdown")) {
                    Thread.getAllStackTraces().keySet().stream().filter(each -> each.getName().startsWith("NettyEventExecutor"))
                            .forEach(Thread::interrupt);
                }
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    private static boolean has(StackTraceElement[] stack, String method) {
        return Arrays.stream(stack).anyMatch(frame -> frame.getMethodName().equals(method));
    }

    private static void run(String nameservers, String[] words) {
        try {
            switch (words[0]) {
                case "help" -> MQAdminStartup.main0(new String[0], null);
                case "options" -> options();
                case "member", "reader" -> member(nameservers, words[1], words[2], words[0].equals("reader"));
                case "seller" -> seller(nameservers, words[1], words[2]);
                case "traced" -> traced(nameservers, words[1]);
                case "commit" -> MEMBERS.forEach(one -> one.getDefaultMQPushConsumerImpl().persistConsumerOffset());
                default -> {
                    forget();
                    MQAdminStartup.main0(words, null);
                }
            }
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.printf("%nDONE%n"); // some commands end in the middle of a line
    }

    /** The commands of the last call: some keep a client that is shut down. */
    private static void forget() throws ReflectiveOperationException {
        commands().clear();
    }

    private static List<?> commands() throws ReflectiveOperationException {
        for (java.lang.reflect.Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<?>) field.get(null);
            }
        }
        throw new NoSuchFieldException("the list of commands");
    }

    private static void options() throws ReflectiveOperationException {
        forget();
        MQAdminStartup.initCommand();
        for (Object each : commands()) {
            SubCommand command = (SubCommand) each;
            for (Option option : command.buildCommandlineOptions(new Options()).getOptions()) {
                System.out.printf("%s %s %s %s%n", command.commandName(), option.getOpt(), option.getLongOpt(), option.hasArg());
            }
        }
    }

    private static void member(String nameservers, String topic, String group, boolean prints) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameservers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (prints) {
                messages.forEach(one -> System.out.println("GOT " + new String(one.getBody())));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        MEMBERS.add(consumer);
        System.out.printf("CLIENT %s%n", consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId());
    }

    private static void traced(String nameservers, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("traced");
        producer.setEnableTrace(true);
        producer.setNamesrvAddr(nameservers);
        producer.setTraceMsgBatchNum(1);
        producer.start();
        System.out.printf("CLIENT %s%n", producer.send(new Message(topic, "blue", "traced".getBytes())).getMsgId());
        SELLERS.add(producer);
    }

    private static void seller(String nameservers, String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameservers);
        producer.start();
        producer.send(new Message(topic, "blue", "sold".getBytes()), new MessageQueue(topic, "broker-a", 2));
        SELLERS.add(producer);
    }
}
