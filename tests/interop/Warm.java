import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Loads what the other programs of the tests load, so that the machine keeps it for them (class data sharing): a nameserver, a
 * broker, a producer, a consumer, and mqadmin. Warm NAMESRV NAMESRV.CONF BROKER.CONF
 */
public final class Warm {
    public static void main(String[] args) {
        int end = 1;
        try {
            NamesrvController nameserver = NamesrvStartup.main0(new String[] {"-c", args[1]});
            BrokerController broker = BrokerStartup.start(BrokerStartup.createBrokerController(new String[] {"-c", args[2]}));
            while (nameserver.getRouteInfoManager().pickupTopicRouteData(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC) == null) {
                Thread.sleep(20); // one that had no connection to its nameserver yet would register again ten seconds later
                broker.registerBrokerAll(true, false, true);
            }
            Interop.play(new String[] {"send", args[0], "Warm", "2"});
            Interop.play(new String[] {"consume", args[0], "Warm", "warm", "*"}); // until standard input ends, which is at once
            MQAdminStartup.main0(new String[] {"topicStatus", "-n", args[0], "-t", "Warm"}, null);
            end = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(end); // to stop a broker in order takes ten seconds
    }
}
