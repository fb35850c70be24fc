include $(sort $(wildcard $(BR2_EXTERNAL_STEADFAST_PATH)/package/*/*.mk))
